#include "train/data/dataset.h"

#include <cstdlib>

#include "common/check.h"

namespace trainyard {

int64_t VocabularyOf(const DataOptions& options) {
  const InputSpec* const tokens = FindInput(options.inputs, "tokens");
  CHECK(tokens != nullptr) << "the model reads no tokens";
  return tokens->limit;
}

absl::StatusOr<std::vector<int64_t>> Dataset::PairsOf(int64_t) const {
  CHECK(false) << "data without pairs";
  std::abort();
}

absl::StatusOr<DataSplits> OpenData(const DataOptions& options) {
  CHECK(options.sequence > 0) << options.sequence;
  CHECK(options.source.source() != nullptr) << "no source of data";
  return options.source.source()->open(options.source, options);
}

}  // namespace trainyard
