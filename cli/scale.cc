#include "cli/scale.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "cli/published_line.h"
#include "common/status_macros.h"
#include "train/config/precision.h"
#include "train/config/scale.h"
#include "train/step/rank_engine.h"

namespace trainyard::cli {
namespace {

struct SmallestDevice {
  DeviceKind kind = DeviceKind::kCpu;
  uint64_t memory_bytes = std::numeric_limits<uint64_t>::max();
};

absl::StatusOr<SmallestDevice> FindSmallest(Client& client) {
  ASSIGN_OR_RETURN(const v1::ListWorkersResponse response,
                   client.Call(&v1::ClusterService::Stub::ListWorkers, v1::ListWorkersRequest()));
  SmallestDevice smallest;
  for (const v1::Worker& worker : response.workers()) {
    for (const v1::Device& device : worker.devices()) {
      if (device.memory_bytes() == 0 || device.memory_bytes() >= smallest.memory_bytes) continue;
      smallest.memory_bytes = device.memory_bytes();
      smallest.kind = device.kind() == v1::DEVICE_KIND_CUDA ? DeviceKind::kCuda : DeviceKind::kCpu;
    }
  }
  return smallest;
}

// The ranks of a pipeline stage have the same memory plan.
bool Fits(const JobConfig& job, const ModelConfig& model, const SmallestDevice& device) {
  const int64_t ranks_of_stage = job.devices / job.parallelism.pipeline;
  for (int64_t stage = 0; stage < job.parallelism.pipeline; ++stage) {
    const auto plan = PlanRank(job, model, int(stage * ranks_of_stage), device.kind);
    if (!plan.ok()) return true;  // The service says what is wrong.
    if (plan->memory.total_bytes() > device.memory_bytes) return false;
  }
  return true;
}

}  // namespace

absl::Status ScaleSpec(int64_t devices, Client& client, SpecDocument& document, Output& output) {
  absl::StatusOr<SpecDocument::Parsed> parsed = document.ToConfig();
  if (!parsed.ok()) return document.Explain(parsed.status());
  ASSIGN_OR_RETURN(const SmallestDevice smallest, FindSmallest(client));
  const auto fits = [&](const JobConfig& job, const ModelConfig& model) {
    return Fits(job, model, smallest);
  };
  const Scaling scaling = ScaleTo(parsed->job, parsed->model, {.devices = devices, .fits = fits});
  for (const ScaledField& field : scaling.changes) {
    output.Note(
        absl::StrCat("scaled: ", field.path, " ", field.from, " -> ", field.to, ": ", field.why));
    RETURN_IF_ERROR(document.Set(absl::StrCat(field.path, "=", field.to), "--scale-to"));
  }
  const auto page = parsed->job.labels.find(kPagePrecisionLabel);
  const char* const ours = Name(parsed->job.precision);
  if (page != parsed->job.labels.end() && page->second != ours) {
    output.Note(absl::StrCat("scaled: precision ", page->second, " -> ", ours,
                             ": no device at hand multiplies in ", page->second));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::cli
