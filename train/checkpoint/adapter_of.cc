#include "train/checkpoint/adapter_of.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/strip.h"

namespace trainyard {

LowRank AdapterOf(const Checkpoint& checkpoint) {
  const std::optional<LoraNumbers>& numbers = checkpoint.state().adapter;
  if (!numbers) return {};
  std::set<std::string, std::less<>> targets;
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) {
    absl::string_view module = tensor.name;
    if (absl::ConsumeSuffix(&module, kLowRankDown)) targets.insert(TargetOf(module));
  }
  return {.rank = numbers->rank,
          .scale = numbers->scale(),
          .magnitudes = numbers->dora,
          .adapts = [targets = std::move(targets)](absl::string_view target) {
            return targets.contains(target);
          }};
}

}  // namespace trainyard
