#include "train/trainer/validation.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"
#include "train/data/chat.h"
#include "train/trainer/counted_targets.h"
#include "train/trainer/recorded_numbers.h"

namespace trainyard {

namespace {

absl::StatusOr<std::unique_ptr<PromptCodec>> OpenCodec(const JobValidation::Options& of) {
  CHECK(of.open_prompts != nullptr) << "nothing encodes prompts";
  PromptOptions options{.tokenizer = of.job.validation->generate->tokenizer,
                        .vocab = FactsOf(of.model).vocab,
                        .roots = of.roots};
  if (of.job.data.source() == &ChatSource()) {
    const ChatData& chat = of.job.data.As<ChatData>();
    options.chats = true;
    options.format = chat.format;
    options.date = chat.date;
    // The data know where the tokenizer is if the imported model's directory is gone.
    if (options.tokenizer == chat.tokenizer) options.tokenizer = of.data.splits.tokenizer;
  }
  absl::StatusOr<std::unique_ptr<PromptCodec>> codec = of.open_prompts(options);
  if (codec.ok()) return codec;
  return absl::Status(codec.status().code(),
                      absl::StrCat("validation.generate.tokenizer: ", codec.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobValidation>> JobValidation::Create(const Options& options) {
  CHECK(options.data.splits.validation != nullptr) << "nothing is held out";
  std::unique_ptr<JobValidation> made(new JobValidation(options));
  if (!options.job.validation->generate) return made;
  ASSIGN_OR_RETURN(made->codec_, OpenCodec(options));
  ASSIGN_OR_RETURN(made->generator_,
                   TextGenerator::Create({.config = *options.job.validation->generate,
                                          .sequence = options.job.batch.sequence,
                                          .seed = options.job.seed,
                                          .codec = *made->codec_,
                                          .inputs = options.data.splits.validation->inputs(),
                                          .shape = options.shape,
                                          .engine = options.engine,
                                          .everyone = options.everyone,
                                          .progress = options.progress}));
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
    ASSIGN_OR_RETURN(const StepBatch batch,
                     ReadStepBatch(reader_, engine.part(), i * job.batch.global));
    const StepState state = engine.runner().Forward(batch, tokens);
    BatchCounts counts;
    if (!splits.validation->counts_all_targets()) {
      counts = CountBatch(batch, engine.mesh(), engine.part());
    }
    sums.Add(state, counts);
  }
  options_.everyone.AllReduceSum(sums.values());
  RETURN_IF_ERROR(CheckCounted(options_.data.field, tokens, sums.uncounted()));
  sums.Record(tokens, job, record);
  if (!generator_) return absl::OkStatus();
  ASSIGN_OR_RETURN(record.generated, generator_->Write());
  if (options_.everyone.rank() != 0) record.generated.clear();
  return absl::OkStatus();
}

}  // namespace trainyard
