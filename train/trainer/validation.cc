#include "train/trainer/validation.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/json.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"
#include "train/checkpoint/best.h"
#include "train/config/resolved_job.h"
#include "train/data/source.h"
#include "train/step/agree.h"
#include "train/trainer/counted_targets.h"
#include "train/trainer/recorded_numbers.h"

namespace trainyard {
namespace {

constexpr size_t kMeasureDigits = 16;  // Of a SHA-256. Nobody has a reason to make two equal.

absl::StatusOr<std::unique_ptr<PromptCodec>> OpenCodec(const JobValidation::Options& of) {
  CHECK(of.open_prompts != nullptr) << "nothing encodes prompts";
  const DataSplits& data = of.data.splits;
  const std::string& named = of.job.validation->generate->tokenizer;
  PromptOptions options{.tokenizer = TokenizerOrKept(of.job, named, of.roots),
                        .vocab = FactsOf(of.model).vocab,
                        .roots = of.roots};
  // Files of tokens may have another tokenizer than the imported model, which no spec has named.
  const bool by_default = named.empty() || named == of.job.model.import_path;
  const bool of_files = FactsOf(of.job.data).of_token_files;
  if (of_files && by_default) {
    // Files that no longer say it have said it to an earlier attempt.
    const std::string of_data =
        data.tokenizer.empty() ? NewestKeptTokenizer(of.job, of.roots) : data.tokenizer;
    if (!of_data.empty()) options.tokenizer = of_data;
  }
  if (of_files && options.tokenizer.empty() && options.vocab != kByteVocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        "validation.generate.tokenizer: wanted the tokenizer of a model with a vocabulary of ",
        options.vocab, ", since nothing beside ", of.data.field, " says it, found none"));
  }
  if (const std::optional<ChatFacts> chat = FactsOf(of.job.data).chat) {
    options.chats = true;
    options.format = chat->format;
    options.date = chat->date;
  }
  absl::StatusOr<std::unique_ptr<PromptCodec>> codec = of.open_prompts(options);
  if (!codec.ok()) {
    return absl::Status(codec.status().code(),
                        absl::StrCat("validation.generate.tokenizer: ", codec.status().message()));
  }
  if (!data.tokenizer_sha256.empty() && (*codec)->tokenizer_sha256() != data.tokenizer_sha256) {
    return absl::InvalidArgumentError(
        absl::StrCat("validation.generate.tokenizer: ", options.tokenizer,
                     ": wanted the tokenizer of the data, ", data.tokenizer,
                     ", found another; without the field, the data's is taken"));
  }
  return codec;
}

// Without fields that say nothing, so that a release with further fields has the same measures.
nlohmann::ordered_json WithoutEmpty(const nlohmann::ordered_json& json) {
  if (!json.is_object()) return json;
  nlohmann::ordered_json said = nlohmann::ordered_json::object();
  for (const auto& [name, value] : json.items()) {
    const nlohmann::ordered_json kept = WithoutEmpty(value);
    if (!kept.empty() && kept != "" && kept != false && kept != 0) said[name] = kept;
  }
  return said;
}

}  // namespace

std::string ValidationMeasure(const JobConfig& job) {
  const nlohmann::ordered_json all = JobJson(job);
  nlohmann::ordered_json measured = {{"data", WithoutEmpty(all.at("data"))},
                                     {"preference", WithoutEmpty(all.at("preference"))}};
  // Not the batch's division into micro-batches.
  measured["batch"] = {job.batch.global, job.batch.sequence};
  measured["batches"] = job.validation->batches;
  // A job that goes on with other files may have them at the same paths.
  if (job.continues && !job.continues->allow.empty()) measured["continues"] = all.at("continues");
  return Sha256Of(JsonText(measured)).substr(0, kMeasureDigits);
}

std::optional<ValidationResult> ValidationOf(const StepRecord& record, const JobConfig& job) {
  if (!record.validation_loss || !std::isfinite(*record.validation_loss)) return std::nullopt;
  return ValidationResult{.loss = *record.validation_loss, .measure = ValidationMeasure(job)};
}

bool IsWorthKeeping(const StepRecord& record, const JobConfig& job, const std::string& directory,
                    OpenedCheckpoints& opened, Collective& everyone) {
  if (!job.checkpoint || job.checkpoint->keep_best == 0 || !record.validation_loss) return false;
  int64_t among = 0;
  if (const auto validation = ValidationOf(record, job); validation && everyone.rank() == 0) {
    // The save reports the error of a directory that cannot be read.
    among = IsAmongBest(directory, *validation, job.checkpoint->keep_best, opened).value_or(true);
  }
  everyone.AllReduceMax(Tensor{{&among, DType::kI64, Shape{1}}});
  return among != 0;
}

absl::StatusOr<std::unique_ptr<JobValidation>> JobValidation::Create(const Options& options) {
  CHECK(options.data.splits.validation != nullptr) << "nothing is held out";
  std::unique_ptr<JobValidation> made(new JobValidation(options));
  if (!options.job.validation->generate) return made;
  absl::Status opened;
  if (options.everyone.rank() == 0) {
    absl::StatusOr<std::unique_ptr<PromptCodec>> codec = OpenCodec(options);
    opened = codec.status();
    if (codec.ok()) made->codec_ = *std::move(codec);
  }
  RETURN_IF_ERROR(AgreeOnStatus(options.everyone, opened));
  ASSIGN_OR_RETURN(made->generator_,
                   TextGenerator::Create({.config = *options.job.validation->generate,
                                          .sequence = options.job.batch.sequence,
                                          .seed = options.job.seed,
                                          .codec = made->codec_.get(),
                                          .inputs = options.data.splits.validation->inputs(),
                                          .shape = options.shape,
                                          .engine = options.engine,
                                          .everyone = options.everyone,
                                          .progress = options.progress,
                                          .stop = options.stop}));
  return made;
}

absl::Status JobValidation::Measure(StepRecord& record) {
  const JobConfig& job = options_.job;
  const DataSplits& splits = options_.data.splits;
  const int64_t batches = ValidationBatches(job, splits);
  const int64_t tokens = batches * job.batch.global * job.batch.sequence;
  RankEngine& engine = options_.engine;
  ValidationSums sums;
  for (int64_t i = 0; i < batches; ++i) {
    options_.progress();
    const absl::StatusOr<StepBatch> batch =
        ReadStepBatch(reader_, engine.part(), i * job.batch.global);
    if (!batch.ok()) return options_.leave(batch.status());
    const StepState state = engine.runner().Forward(*batch, tokens);
    BatchCounts counts;
    if (!splits.validation->counts_all_targets()) {
      counts = CountBatch(*batch, engine.mesh(), engine.part());
    }
    sums.Add(state, counts);
  }
  options_.everyone.AllReduceSum(sums.values());
  RETURN_IF_ERROR(CheckCounted(options_.data.field, tokens, sums.uncounted()));
  sums.Record(tokens, job, record);
  if (generator_) record.generated = generator_->Write();
  return absl::OkStatus();
}

}  // namespace trainyard
