#include "train/checkpoint/adapter_of.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/strip.h"

namespace trainyard {

LowRank AdapterOf(const Checkpoint& checkpoint) {
  const std::optional<LoraNumbers>& numbers = checkpoint.state().adapter;
  if (!numbers) return {};
  std::set<std::string, std::less<>> modules;
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) {
    absl::string_view module = tensor.name;
    if (absl::ConsumeSuffix(&module, kLowRankDown)) modules.emplace(module);
  }
  return {.rank = numbers->rank,
          .scale = numbers->scale(),
          .magnitudes = numbers->dora,
          .adapts = [modules = std::move(modules)](absl::string_view module) {
            return modules.contains(module);
          }};
}

}  // namespace trainyard
