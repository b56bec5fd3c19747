#include "train/trainer/reported_checkpoints.h"

#include <cstddef>

#include "common/log.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"

namespace trainyard {
namespace {

constexpr size_t kMaxReported = 64;
constexpr size_t kMaxLoadableBytes = 64 << 10;  // Paths in one line of the local socket.

}  // namespace

std::vector<LoadableCheckpoint> ReportLoadable(const std::string& directory) {
  std::vector<LoadableCheckpoint> loadable;
  size_t bytes = 0;
  for (const ListedCheckpoint& listed :
       LoadableCheckpoints(directory).value_or(std::vector<ListedCheckpoint>())) {
    bytes += listed.path.size();
    if (loadable.size() == kMaxReported || bytes > kMaxLoadableBytes) break;
    const auto opened = Checkpoint::Open(listed.path);
    if (!opened.ok()) continue;
    loadable.push_back({uint64_t(listed.epoch), uint64_t(listed.step), listed.path,
                        uint64_t(opened->manifest().size_bytes())});
  }
  return loadable;
}

std::vector<CheckpointId> RetainAndReport(const std::string& directory,
                                          const Retention& retention) {
  std::vector<ListedCheckpoint> left;
  const absl::Status retained = ApplyRetention(directory, retention, LocalStorage(), &left);
  if (!retained.ok()) LogWarning("retention_failed", {{"error", retained.message()}});
  if (left.size() > kMaxReported) left.resize(kMaxReported);
  std::vector<CheckpointId> ids;
  for (const ListedCheckpoint& c : left) ids.push_back({uint64_t(c.epoch), uint64_t(c.step)});
  return ids;
}

}  // namespace trainyard
