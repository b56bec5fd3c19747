#include "train/trainer/reported_checkpoints.h"

#include <cstddef>

#include "common/log.h"
#include "train/checkpoint/best.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"

namespace trainyard {
namespace {

constexpr size_t kMaxReported = 64;
constexpr size_t kMaxLoadableBytes = 64 << 10;  // Paths in one line of the local socket.

// Absent, too, if a checkpoint that cannot be read now might be better than the others.
std::optional<BestCheckpoint> BestOf(const std::vector<ListedCheckpoint>& newest_first,
                                     OpenedCheckpoints& opened) {
  const BestCheckpoints best = OrderByLoss(newest_first, opened);
  for (const auto& [listed, why] : best.unreadable) {
    if (!SaysThatItIsNotGood(why)) return std::nullopt;
  }
  if (best.best_first.empty()) return std::nullopt;
  const ListedCheckpoint& first = best.best_first.front();
  return BestCheckpoint{uint64_t(first.epoch), uint64_t(first.step), best.losses.front()};
}

}  // namespace

std::vector<LoadableCheckpoint> ReportLoadable(const std::string& directory,
                                               OpenedCheckpoints& opened) {
  std::vector<LoadableCheckpoint> loadable;
  size_t bytes = 0;
  for (const ListedCheckpoint& listed :
       LoadableCheckpoints(directory).value_or(std::vector<ListedCheckpoint>())) {
    bytes += listed.path.size();
    if (loadable.size() == kMaxReported || bytes > kMaxLoadableBytes) break;
    const auto& facts = opened.Of(listed.path);
    if (!facts.ok()) continue;
    loadable.push_back(
        {uint64_t(listed.epoch), uint64_t(listed.step), listed.path, facts->size_bytes});
  }
  return loadable;
}

std::optional<BestCheckpoint> ReportBest(const std::string& directory, OpenedCheckpoints& opened) {
  return BestOf(LoadableCheckpoints(directory).value_or(std::vector<ListedCheckpoint>()), opened);
}

void RetainAndReport(const std::string& directory, const Retention& retention,
                     OpenedCheckpoints& opened, CheckpointRecord& record) {
  std::vector<ListedCheckpoint> left;
  const absl::Status retained = ApplyRetention(directory, retention, LocalStorage(), opened, &left);
  if (!retained.ok()) LogWarning("retention_failed", {{"error", retained.message()}});
  if (retention.keep_best > 0) record.best = BestOf(left, opened);
  if (left.size() > kMaxReported) left.resize(kMaxReported);
  for (const ListedCheckpoint& c : left) {
    record.retained.push_back({uint64_t(c.epoch), uint64_t(c.step)});
  }
}

}  // namespace trainyard
