#include "train/checkpoint/paths.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/epochs.h"

namespace trainyard {
namespace {

std::optional<int64_t> ParseNumbered(absl::string_view prefix, absl::string_view name) {
  int64_t number = 0;
  if (name.substr(0, prefix.size()) != prefix) return std::nullopt;
  if (!absl::SimpleAtoi(name.substr(prefix.size()), &number) || number < 0) return std::nullopt;
  // Only one spelling is legal. Otherwise two directories could be the same checkpoint.
  if (absl::StrCat(prefix, number) != name) return std::nullopt;
  return number;
}

}  // namespace

std::string EpochPath(const std::string& directory, int64_t epoch) {
  return absl::StrCat(directory, "/epoch-", epoch);
}

std::string CheckpointPath(const std::string& directory, int64_t epoch, int64_t step) {
  return absl::StrCat(EpochPath(directory, epoch), "/step-", step);
}

std::string BasePath(const std::string& directory, int64_t epoch) {
  return absl::StrCat(EpochPath(directory, epoch), "/", kBaseName);
}

std::string DataFileName(int64_t rank) { return absl::StrCat("rank-", rank, ".bin"); }

std::optional<int64_t> ParseEpochName(absl::string_view name) {
  const std::optional<int64_t> epoch = ParseNumbered("epoch-", name);
  return epoch <= kMostEpoch ? epoch : std::nullopt;
}
bool IsImpossibleEpochName(absl::string_view name) {
  return ParseNumbered("epoch-", name) > kMostEpoch;
}
std::optional<int64_t> ParseStepName(absl::string_view name) {
  return ParseNumbered("step-", name);
}

std::optional<std::pair<int64_t, int64_t>> ParseCheckpointPath(absl::string_view path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  if (parts.size() < 2) return std::nullopt;
  const auto epoch = ParseEpochName(parts[parts.size() - 2]), step = ParseStepName(parts.back());
  if (!epoch || !step) return std::nullopt;
  return std::make_pair(*epoch, *step);
}

}  // namespace trainyard
