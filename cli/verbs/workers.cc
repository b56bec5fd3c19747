// trainyard workers: lists the machines and their devices.

#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/client.h"
#include "cli/format.h"
#include "cli/verbs/verbs.h"
#include "common/status_macros.h"

namespace trainyard::cli {
namespace {

std::string Peaks(const v1::Device& device) {
  std::string text;
  for (const v1::PeakRate& peak : device.peak()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", peak.dtype(), " ", FormatCount(peak.flops()),
                    "FLOP/s", peak.measured() ? " measured" : "");
  }
  return text;
}

absl::Status RunWorkers(const Context& context) {
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(const v1::ListWorkersResponse response,
                   client.Call(&v1::ClusterService::Stub::ListWorkers, v1::ListWorkersRequest()));
  if (PrintedAsJson(response, response.workers(), context.output)) return absl::OkStatus();
  std::vector<std::vector<std::string>> rows;
  for (const v1::Worker& worker : response.workers()) {
    const std::string state = ShortName(worker.state(), "WORKER_STATE_");
    for (const v1::Device& device : worker.devices()) {
      rows.push_back(
          {worker.id(), worker.hostname(), state, absl::StrCat(device.index()), device.model(),
           absl::StrCat(FormatCount(double(device.memory_bytes())), "B"), Peaks(device),
           device.job_id().empty() ? "free"
                                   : absl::StrCat(device.job_id(), " rank ", device.rank()),
           worker.metrics_url()});
    }
    if (worker.devices().empty()) {
      rows.push_back(
          {worker.id(), worker.hostname(), state, "", "", "", "", "", worker.metrics_url()});
    }
  }
  context.output.Table({{"WORKER"},
                        {"HOST"},
                        {"STATE"},
                        {"DEVICE", true},
                        {"MODEL"},
                        {"MEMORY", true},
                        {"PEAK"},
                        {"HELD BY"},
                        {"METRICS"}},
                       rows);
  return absl::OkStatus();
}

}  // namespace

Verb WorkersVerb() {
  return {.name = "workers",
          .summary = "lists the machines, their devices and who holds them",
          .positionals = {},
          .options = {},
          .offers = kController | kFormats | kQuiet,
          .examples = {"trainyard workers", "trainyard workers -o json"},
          .run = RunWorkers};
}

}  // namespace trainyard::cli
