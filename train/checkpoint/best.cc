#include "train/checkpoint/best.h"

#include <algorithm>
#include <cmath>

#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"

namespace trainyard {

BestCheckpoints OrderByLoss(const std::vector<ListedCheckpoint>& newest_first,
                            OpenedCheckpoints& opened) {
  BestCheckpoints best;
  std::vector<std::pair<double, ListedCheckpoint>> measured;
  for (const ListedCheckpoint& listed : newest_first) {
    const auto& facts = opened.Of(listed.path);
    if (!facts.ok()) {
      best.unreadable.push_back({listed, facts.status()});
      continue;
    }
    const std::optional<ValidationResult>& validation = facts->validation;
    if (!validation) continue;
    if (measured.empty()) best.measure = validation->measure;
    if (validation->measure == best.measure) measured.push_back({validation->loss, listed});
  }
  std::stable_sort(measured.begin(), measured.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [loss, listed] : measured) {
    best.losses.push_back(loss);
    best.best_first.push_back(std::move(listed));
  }
  return best;
}

absl::StatusOr<bool> IsAmongBest(const std::string& directory, const ValidationResult& validation,
                                 int64_t most, OpenedCheckpoints& opened) {
  if (most < 1 || !std::isfinite(validation.loss)) return false;
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> loadable, LoadableCheckpoints(directory));
  const BestCheckpoints best = OrderByLoss(loadable, opened);
  if (best.measure != validation.measure) return true;
  // A checkpoint that is as good is not replaced.
  const auto as_good = std::upper_bound(best.losses.begin(), best.losses.end(), validation.loss);
  return as_good - best.losses.begin() < most;
}

}  // namespace trainyard
