#include "train/step/memory_limit.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/bytes.h"
#include "train/config/adapter.h"
#include "train/config/nf4.h"
#include "train/config/precision.h"

namespace trainyard {
namespace {

// Whether the optimizer's state can be smaller in another form. That of an adapter is small.
bool HasCompactState(const JobConfig& job) {
  const OptimizerOptions& chosen = job.optimizer.options;
  const auto& options = chosen.optimizer().options;
  const bool has_forms = std::any_of(
      options.begin(), options.end(),
      [](const OptimizerOption& option) { return absl::string_view(option.name) == "state"; });
  return has_forms && chosen.state() == OptimizerState::kF32 && !job.adapter &&
         RowOf(job.precision).formats.CanBeCompact();
}

std::string ToBeCompact(const JobConfig& job) {
  return absl::StrCat("optimizer.", job.optimizer.options.optimizer().name, ".state COMPACT");
}

// Whether the base of the job's adapter can be in NF4, and is not.
bool CanBeInNf4(JobConfig job, const ModelConfig& model) {
  if (!job.adapter || !job.adapter->lora || IsBaseInNf4(job)) return false;
  job.adapter->lora->base = LoraBase::kNf4;
  Violations violations;
  ValidateNf4(job, &model, violations);
  return violations.empty();
}

// If one part alone is too large, only a change that makes this part smaller can be enough.
std::vector<std::string> Advice(const MemoryPlan& plan, const DeviceMemory& memory,
                                const JobConfig& job, const ModelConfig& model) {
  const size_t limit_bytes = memory.for_plan();
  const ModelFacts facts = FactsOf(model);
  const ParallelismConfig& p = job.parallelism;
  const bool parameters_over = plan.parameter_bytes() > limit_bytes;
  const bool activations_over = plan.activation_bytes() > limit_bytes;
  std::vector<std::string> advice;
  // Otherwise that memory is not attention's for one order.
  const bool ordered =
      job.deterministic && !IsBaseInNf4(job) && plan.workspace_bytes > plan.total_bytes() / 100;
  if (ordered) advice.push_back("deterministic false");
  if (activations_over || !parameters_over) {
    if (job.batch.micro > 1) {
      advice.push_back(absl::StrCat("batch.micro less than ", job.batch.micro));
    }
    if (job.recompute.blocks * p.pipeline < facts.layers) {
      advice.push_back(absl::StrCat("recompute.blocks more than ", job.recompute.blocks));
    }
    advice.push_back(absl::StrCat("parallelism.context more than ", p.context));
  }
  advice.push_back(absl::StrCat("parallelism.tensor more than ", p.tensor));
  if (parameters_over || !activations_over) {
    if (HasCompactState(job)) advice.push_back(ToBeCompact(job));
    // The state of an adapter is small.
    if (memory.kind == DeviceKind::kCuda && !job.optimizer.offload && !job.adapter) {
      advice.push_back("optimizer.offload true");
    }
    if (CanBeInNf4(job, model)) advice.push_back("adapter.lora.base NF4");
    advice.push_back(absl::StrCat("parallelism.pipeline more than ", p.pipeline));
    if (facts.experts) advice.push_back(absl::StrCat("parallelism.expert more than ", p.expert));
    if (p.zero != Zero::kFull) advice.push_back("more devices with parallelism.zero FULL");
  }
  return advice;
}

}  // namespace

size_t DeviceMemory::for_plan() const {
  if (kind == DeviceKind::kCpu) return bytes - bytes / 25;
  constexpr size_t kBeside = size_t{3} << 30;
  return bytes - std::min(bytes, kBeside);
}

absl::Status CheckMemory(const MemoryPlan& plan, const DeviceMemory& memory, const JobConfig& job,
                         const ModelConfig& model) {
  const size_t limit = memory.for_plan();
  if (plan.total_bytes() <= limit) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "memory: wanted ", plan.Summary(), ", found ", FormatBytes(double(limit)), " for it, of the ",
      FormatBytes(double(memory.bytes)), " on the rank's device; less is wanted with ",
      absl::StrJoin(Advice(plan, memory, job, model), ", or ")));
}

absl::Status CheckHostMemory(const MemoryPlan& plan, size_t bytes, const JobConfig& job) {
  const size_t limit = bytes - bytes / 10, wanted = plan.host_total_bytes();
  if (wanted <= limit) return absl::OkStatus();
  std::vector<std::string> advice;
  if (HasCompactState(job)) advice.push_back(ToBeCompact(job));
  const bool divided = job.parallelism.zero != Zero::kNone;
  advice.push_back(divided ? "more devices" : "more devices with parallelism.zero OPTIMIZER");
  advice.push_back(absl::StrCat("parallelism.tensor more than ", job.parallelism.tensor));
  advice.push_back("optimizer.offload false if the device has room");
  return absl::FailedPreconditionError(
      absl::StrCat("memory of the host: wanted ", FormatBytes(double(wanted)),
                   " for the optimizer's state, which optimizer.offload keeps there, found ",
                   FormatBytes(double(limit)), " for it, of the ", FormatBytes(double(bytes)),
                   " that are the rank's part of its machine; less is wanted with ",
                   absl::StrJoin(advice, ", or ")));
}

}  // namespace trainyard
