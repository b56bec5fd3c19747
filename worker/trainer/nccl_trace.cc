#include "worker/trainer/nccl_trace.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/log.h"
#include "common/roots.h"
#include "train/trainer/profiler.h"

namespace trainyard {

bool WantsNcclTrace(const TrainerConfig& config) {
  return config.rank && config.job.profile && config.job.profile->nccl_trace &&
         Traces(config.job, config.rank->rank);
}

absl::Status PrepareNcclTrace(const TrainerConfig& config) {
  if (!WantsNcclTrace(config)) return absl::OkStatus();
  const auto directory = Roots(config.rank->roots).MakeDirectory(config.job.profile->directory);
  if (!directory.ok()) {
    return absl::Status(directory.status().code(),
                        absl::StrCat("profile.directory: ", directory.status().message()));
  }
  const std::string path = TracePrefix(*directory, *config.rank) + "nccl.log";
  // The job's request overrides the machine's own settings for NCCL's log.
  ::setenv("NCCL_DEBUG", "INFO", 1);
  // These log how ranks are connected, which algorithm a collective uses, and each collective.
  ::setenv("NCCL_DEBUG_SUBSYS", "INIT,ENV,GRAPH,NET,P2P,SHM,TUNING,COLL", 1);
  // NCCL replaces %h and %p in this name by host and process, so % is doubled.
  ::setenv("NCCL_DEBUG_FILE", absl::StrReplaceAll(path, {{"%", "%%"}}).c_str(), 1);
  LogInfo("nccl_trace", {{"path", path}});
  return absl::OkStatus();
}

}  // namespace trainyard
