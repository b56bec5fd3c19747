#include "cli/scale.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/published_line.h"
#include "common/bytes.h"
#include "common/status_macros.h"
#include "train/config/resolve_model.h"
#include "train/config/scale.h"
#include "train/step/memory_limit.h"
#include "train/step/rank_engine.h"

namespace trainyard::cli {
namespace {

struct Cluster {
  DeviceMemory smallest{.bytes = std::numeric_limits<size_t>::max()};
  // The devices of each machine that takes ranks, by the kind. The ranks of a job have one kind.
  std::map<v1::DeviceKind, std::vector<int64_t>> machines;

  int64_t LargestMachine() const {
    int64_t most = 0;
    for (const auto& [kind, devices] : machines) most = std::max(most, std::ranges::max(devices));
    return most;
  }

  // The devices that groups of `tensor` can take, each on one machine.
  int64_t DevicesInGroups(int64_t tensor) const {
    int64_t most = 0;
    for (const auto& [kind, devices] : machines) {
      int64_t sum = 0;
      for (const int64_t count : devices) sum += count / tensor * tensor;
      most = std::max(most, sum);
    }
    return most;
  }
};

absl::StatusOr<Cluster> FindCluster(Client& client) {
  ASSIGN_OR_RETURN(const v1::ListWorkersResponse response,
                   client.Call(&v1::ClusterService::Stub::ListWorkers, v1::ListWorkersRequest()));
  Cluster cluster;
  DeviceMemory& smallest = cluster.smallest;
  for (const v1::Worker& worker : response.workers()) {
    if (worker.state() == v1::WORKER_STATE_READY && worker.devices_size() > 0) {
      cluster.machines[worker.devices(0).kind()].push_back(worker.devices_size());
    }
    for (const v1::Device& device : worker.devices()) {
      if (device.memory_bytes() == 0 || device.memory_bytes() >= smallest.bytes) continue;
      smallest.bytes = device.memory_bytes();
      smallest.kind = device.kind() == v1::DEVICE_KIND_CUDA ? DeviceKind::kCuda : DeviceKind::kCpu;
    }
  }
  return cluster;
}

// What makes the plan of a job with one device smaller. Its axes cannot grow.
std::string AdviceForOneDevice(const MemoryPlan& plan, size_t limit_bytes, const JobConfig& job,
                               const ModelConfig& model) {
  std::vector<std::string> advice;
  if (plan.parameter_bytes() <= limit_bytes) {
    if (job.batch.micro > 1) {
      advice.push_back(absl::StrCat("batch.micro less than ", job.batch.micro));
    }
    if (job.recompute.blocks < FactsOf(model).layers) {
      advice.push_back(absl::StrCat("recompute.blocks more than ", job.recompute.blocks));
    }
    if (!FactsOf(model).one_sequence) {
      advice.push_back(absl::StrCat("batch.sequence less than ", job.batch.sequence));
    }
  }
  advice.push_back("a smaller model");
  advice.push_back("--scale-to more than 1");
  return absl::StrJoin(advice, ", or ");
}

// FAILED_PRECONDITION: a rank needs more memory than the device has. The ranks of a pipeline stage
// have the same plan.
absl::Status CheckPlans(const JobConfig& job, const ModelConfig& model,
                        const DeviceMemory& device) {
  const int64_t ranks_of_stage = job.devices / job.parallelism.pipeline;
  for (int64_t stage = 0; stage < job.parallelism.pipeline; ++stage) {
    constexpr auto kMost = size_t(std::numeric_limits<int64_t>::max());
    const auto plan = PlanRank(job, model, int(stage * ranks_of_stage), device.kind,
                               {.memory_bytes = int64_t(std::min(device.bytes, kMost))});
    RETURN_IF_ERROR(plan.status());
    const absl::Status found = CheckMemory(plan->memory, device, job, model);
    if (found.ok()) continue;
    if (job.devices > 1) return found;
    return absl::FailedPreconditionError(absl::StrCat(
        "memory: wanted ", plan->memory.Summary(), ", found ",
        FormatBytes(double(device.for_plan())), " for it, of the ",
        FormatBytes(double(device.bytes)), " on the smallest device; less is wanted with ",
        AdviceForOneDevice(plan->memory, device.for_plan(), job, model)));
  }
  return absl::OkStatus();
}

// Notes what the changes do not say of the run that follows.
void NoteRun(const JobConfig& job, const ModelConfig& model, const Cluster& cluster,
             Output& output) {
  const int64_t tensor = job.parallelism.tensor, held = cluster.DevicesInGroups(tensor);
  if (job.devices > held) {  // Workers may still join, so this is no error.
    const std::string groups =
        tensor == 1 ? "" : absl::StrCat(" in groups of ", tensor, " on a machine");
    output.Note(absl::StrCat("--scale-to: the job needs ", job.devices, " devices", groups,
                             ", and the cluster has ", held,
                             ": the job waits in the queue until workers with more have joined"));
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
  const DeviceMemory& smallest = cluster.smallest;
  const auto fits = [&](const JobConfig& job, const ModelConfig& model) {
    return CheckPlans(job, model, smallest).ok();
  };
  const ScaledJob scaling =
      ScaleTo(parsed->job, parsed->model,
              {.devices = devices, .devices_of_machine = cluster.LargestMachine(), .fits = fits});
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
