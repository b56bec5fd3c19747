#include "cli/scale.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "cli/published_line.h"
#include "common/status_macros.h"
#include "train/config/precision.h"
#include "train/config/resolve_model.h"
#include "train/config/scale.h"
#include "train/step/memory_limit.h"
#include "train/step/rank_engine.h"

namespace trainyard::cli {
namespace {

struct SmallestDevice {
  DeviceKind kind = DeviceKind::kCpu;
  uint64_t memory_bytes = std::numeric_limits<uint64_t>::max();
};

struct Cluster {
  SmallestDevice smallest;
  int64_t ready = 0;  // Devices of workers that take ranks.
};

absl::StatusOr<Cluster> FindCluster(Client& client) {
  ASSIGN_OR_RETURN(const v1::ListWorkersResponse response,
                   client.Call(&v1::ClusterService::Stub::ListWorkers, v1::ListWorkersRequest()));
  Cluster cluster;
  SmallestDevice& smallest = cluster.smallest;
  for (const v1::Worker& worker : response.workers()) {
    if (worker.state() == v1::WORKER_STATE_READY) cluster.ready += worker.devices_size();
    for (const v1::Device& device : worker.devices()) {
      if (device.memory_bytes() == 0 || device.memory_bytes() >= smallest.memory_bytes) continue;
      smallest.memory_bytes = device.memory_bytes();
      smallest.kind = device.kind() == v1::DEVICE_KIND_CUDA ? DeviceKind::kCuda : DeviceKind::kCpu;
    }
  }
  return cluster;
}

// The part of a device's memory that a plan may take. CUDA and the libraries need some beside it.
constexpr double kPlanned = 0.96;

// FAILED_PRECONDITION: a rank needs more memory than the device has. The ranks of a pipeline stage
// have the same plan.
absl::Status CheckPlans(const JobConfig& job, const ModelConfig& model,
                        const SmallestDevice& device) {
  const int64_t ranks_of_stage = job.devices / job.parallelism.pipeline;
  const size_t limit = size_t(kPlanned * double(device.memory_bytes));
  for (int64_t stage = 0; stage < job.parallelism.pipeline; ++stage) {
    const auto plan = PlanRank(job, model, int(stage * ranks_of_stage), device.kind);
    RETURN_IF_ERROR(plan.status());
    RETURN_IF_ERROR(CheckMemory(plan->memory, limit, job, model));
  }
  return absl::OkStatus();
}

// Notes what the changes do not say of the run that follows.
void NoteRun(const JobConfig& job, const ModelConfig& model, const Cluster& cluster,
             Output& output) {
  if (job.devices > cluster.ready) {  // Workers may still join, so this is no error.
    output.Note(absl::StrCat("--scale-to: the job needs ", job.devices,
                             " devices, and the cluster has ", cluster.ready,
                             ": the job waits in the queue until workers with more have joined"));
  }
  const auto precision = job.labels.find(kPagePrecisionLabel);
  if (precision != job.labels.end() && precision->second == "FP8") {
    output.Note(absl::StrCat("scaled: precision FP8 -> ", Name(job.precision),
                             ": Trainyard does not multiply in FP8 yet"));
  }
  if (const auto page = PageOf(job, model); !page.ok()) {
    output.Note(absl::StrCat("labels.", kPageLabel, ": ", page.status().message(),
                             "; TFLOP/s and MFU will be by the convention 'exact'"));
  }
}

}  // namespace

absl::Status ScaleSpec(int64_t devices, Client& client, SpecDocument& document, Output& output) {
  absl::StatusOr<SpecDocument::Parsed> parsed = document.ToConfig();
  if (!parsed.ok()) return document.Explain(parsed.status());
  ASSIGN_OR_RETURN(const Cluster cluster, FindCluster(client));
  const SmallestDevice& smallest = cluster.smallest;
  const auto fits = [&](const JobConfig& job, const ModelConfig& model) {
    return CheckPlans(job, model, smallest).ok();
  };
  const Scaling scaling = ScaleTo(parsed->job, parsed->model, {.devices = devices, .fits = fits});
  for (const ScaledField& field : scaling.changes) {
    output.Note(
        absl::StrCat("scaled: ", field.path, " ", field.from, " -> ", field.to, ": ", field.why));
    // Quoted, since a pattern of layers may begin with letters that YAML gives a meaning.
    RETURN_IF_ERROR(document.Set(absl::StrCat(field.path, "='", field.to, "'"), "--scale-to"));
  }
  ASSIGN_OR_RETURN(const ModelConfig model, ResolveModel(scaling.job.model));
  if (!scaling.fits) {
    const absl::Status found = CheckPlans(scaling.job, model, smallest);
    return absl::Status(
        found.code(),
        absl::StrCat("--scale-to: with layers = ", FactsOf(model).layers, ", ", found.message()));
  }
  NoteRun(scaling.job, model, cluster, output);
  return absl::OkStatus();
}

}  // namespace trainyard::cli
