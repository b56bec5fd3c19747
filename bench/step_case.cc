#include "bench/step_case.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "models/hf/config.h"
#include "train/config/adapter.h"
#include "train/config/precision.h"
#include "train/config/resolve_model.h"
#include "train/data/indexed.h"
#include "train/data/source.h"

namespace trainyard::bench {
namespace {

struct OwnCase {
  GivenModel model;
  int64_t micro, sequence;
};

constexpr char kCompact[] = "COMPACT";

// Those of bench/beside_pytorch.py.
const std::map<std::string, OwnCase> kOwnCases = {{"byte",
                                                   {.model = {"llama",
                                                              {{"layers", 6},
                                                               {"hidden", 256},
                                                               {"ffn", 768},
                                                               {"heads", 8},
                                                               {"kv_heads", 4},
                                                               {"vocab", 256},
                                                               {"max_seq", 256}}},
                                                    .micro = 16,
                                                    .sequence = 256}},
                                                  {"124m",
                                                   {.model = {"llama",
                                                              {{"layers", 12},
                                                               {"hidden", 768},
                                                               {"ffn", 2048},
                                                               {"heads", 12},
                                                               {"kv_heads", 4},
                                                               {"vocab", 32000},
                                                               {"max_seq", 512}}},
                                                    .micro = 2,
                                                    .sequence = 512}}};

// By their names in small letters, as dtypes are written.
std::map<std::string, PrecisionName> NamedPrecisions() {
  std::map<std::string, PrecisionName> named;
  for (const PrecisionRow& row : Precisions()) {
    named[absl::AsciiStrToLower(row.name)] = row.precision;
  }
  return named;
}

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  for (const Optimizer* const optimizer : Optimizers()) names.push_back(optimizer->name);
  return names;
}

JobConfig JobOf(const StepCase& step) {
  JobConfig job;
  int64_t micro = 1, sequence = 1024;
  const auto own = kOwnCases.find(step.model);
  if (own != kOwnCases.end()) {
    job.model.architecture = own->second.model;
    micro = own->second.micro, sequence = own->second.sequence;
    if (step.layers > 0) job.model.architecture->fields["layers"] = step.layers;
  } else {
    job.model.preset = step.model;
    if (step.layers > 0) job.model.overrides = {"", {{"layers", step.layers}}};
  }
  if (step.micro > 0) micro = step.micro;
  if (step.sequence > 0) sequence = step.sequence;
  job.precision = NamedPrecisions().at(step.precision);
  job.batch = {.global = micro * step.accumulate, .micro = micro, .sequence = sequence};
  job.recompute.blocks = step.recomputed_blocks;
  job.deterministic = step.deterministic;
  job.optimizer.options = OptimizerOptions(*FindOptimizer(step.optimizer));
  if (step.state == kCompact) job.optimizer.options["state"] = double(OptimizerState::kCompact);
  job.optimizer.offload = step.offload;
  if (step.lora > 0) job.adapter.emplace().lora = {.rank = step.lora, .alpha = 16};
  if (step.nf4 && job.adapter) job.adapter->lora->base = LoraBase::kNf4;
  if (step.documents > 1) job.data = IndexedData{.prefix = "none", .reset_attention_mask = true};
  job.devices = 1;
  return job;
}

// Reads {"preset": "llama3-8b", "overrides": {"layers": 1, "moe.experts": 8}}. The overrides are
// integers.
absl::StatusOr<ModelConfig> ModelOfPreset(const nlohmann::json& json) {
  const auto preset = json.find("preset"), overrides = json.find("overrides");
  if (!preset->is_string() || overrides == json.end() || !overrides->is_object()) {
    return absl::InvalidArgumentError("wanted the name of a preset, and an object of overrides");
  }
  ModelChoice choice{.preset = preset->get<std::string>(), .overrides = GivenModel()};
  for (const auto& [field, value] : overrides->items()) {
    if (!value.is_number_integer()) {
      return absl::InvalidArgumentError(absl::StrCat("overrides: ", field, ": wanted an integer"));
    }
    choice.overrides->fields[field] = value.get<int64_t>();
  }
  return ResolveModel(choice);
}

absl::StatusOr<ModelConfig> ModelOfFile(const std::string& path) {
  const auto json = nlohmann::json::parse(std::ifstream(path), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": wanted readable JSON"));
  }
  return json.contains("preset") ? ModelOfPreset(json) : ConfigFromHf(json);
}

}  // namespace

void AddOptions(CLI::App& app, StepCase& step) {
  app.add_option("--case", step.model, "byte, 124m, a preset, or a file (step_case.h)");
  app.add_option("--layers", step.layers, "In place of the model's")->check(CLI::Range(1, 1024));
  app.add_option("--micro", step.micro, "Sequences of a micro-batch")->check(CLI::Range(1, 4096));
  app.add_option("--sequence", step.sequence)->check(CLI::Range(1, 1 << 20));
  app.add_option("--precision", step.precision)->check(CLI::IsMember(NamedPrecisions()));
  app.add_option("--accumulate", step.accumulate, "Micro-batches of a step")
      ->check(CLI::Range(1, 1024));
  app.add_option("--recompute-blocks", step.recomputed_blocks)->check(CLI::Range(0, 1024));
  app.add_option("--optimizer", step.optimizer)->check(CLI::IsMember(OptimizerNames()));
  app.add_option("--state", step.state, "Of AdamW")
      ->check(CLI::IsMember(std::vector<std::string>{"F32", kCompact}));
  app.add_flag("--offload", step.offload, "On a GPU: the optimizer's state is the host's");
  app.add_option("--lora", step.lora, "The rank of adapters: they alone are trained")
      ->check(CLI::Range(int64_t{1}, kMaxLoraRank));
  app.add_flag("--nf4", step.nf4, "With --lora: the base's linear layers and experts are in NF4");
  app.add_option("--deterministic", step.deterministic, "As a job's `deterministic`");
  app.add_option("--documents", step.documents,
                 "Of each sequence, of one length; they see only themselves")
      ->check(CLI::PositiveNumber);
}

absl::StatusOr<ResolvedCase> Resolve(const StepCase& step) {
  const JobConfig job = JobOf(step);
  const bool in_file = absl::EndsWith(step.model, ".json");
  ASSIGN_OR_RETURN(const ModelConfig model,
                   in_file ? ModelOfFile(step.model) : ResolveModel(job.model));
  if (step.documents > job.batch.sequence) {
    return absl::InvalidArgumentError(absl::StrCat("--documents ", step.documents,
                                                   ": more than --sequence ", job.batch.sequence));
  }
  const int64_t longest = FactsOf(model).max_sequence;
  if (job.batch.sequence > longest) {
    return absl::InvalidArgumentError(absl::StrCat("--sequence ", job.batch.sequence, ": ",
                                                   step.model, " has at most ", longest));
  }
  return ResolvedCase{job, model};
}

StepBatch BatchOf(const JobConfig& job, const Model& model, int step, int64_t documents) {
  StepBatch batch(size_t(job.batch.global / job.batch.micro));
  if (ResetsAttentionMask(job.data)) {
    const int64_t sequence = job.batch.sequence, length = (sequence + documents - 1) / documents;
    std::vector<int32_t> begins;
    for (int64_t i = 0; i < job.batch.micro * sequence; ++i) {
      begins.push_back(int32_t(i % sequence / length * length));
    }
    for (MicroBatchData& micro : batch) micro[kDocumentBegins] = begins;
  }
  uint64_t kind = 0;
  for (const InputSpec& input : model.inputs()) {
    ++kind;
    const auto integer = [&](uint64_t at) {
      const uint64_t bits = RandomBits(kind, uint64_t(step), at), limit = uint64_t(input.limit);
      return int32_t(bits % (bits >> 32 & 1 ? limit : std::min<uint64_t>(limit, 64)));
    };
    const bool by_token = input.unit == InputSpec::Unit::kToken;
    const int64_t elements =
        job.batch.micro * (by_token ? job.batch.sequence : 1) * input.shape.elements();
    uint64_t at = 0;
    for (MicroBatchData& micro : batch) {
      std::vector<int32_t> integers;
      std::vector<float> reals;
      for (int64_t i = 0; i < elements; ++i, ++at) {
        if (input.kind == InputSpec::Kind::kInteger) {
          integers.push_back(integer(at));
        } else {
          reals.push_back(float(Normal(kind, uint64_t(step), at)));
        }
      }
      if (input.kind == InputSpec::Kind::kInteger) {
        micro[input.name] = std::move(integers);
      } else {
        micro[input.name] = std::move(reals);
      }
    }
  }
  return batch;
}

}  // namespace trainyard::bench
