#include "train/data/dataset.h"

#include "common/check.h"
#include "train/data/indexed.h"
#include "train/data/synthetic.h"
#include "train/data/text.h"

namespace trainyard {

absl::StatusOr<DataSplits> OpenData(const DataOptions& options) {
  CHECK(options.sequence > 0 && options.vocab > 0) << options.sequence << ", " << options.vocab;
  if (const auto* text = std::get_if<TextData>(&options.source)) {
    return OpenText(*text, options.sequence, options.roots);
  }
  if (const auto* indexed = std::get_if<IndexedData>(&options.source)) {
    return OpenIndexed(*indexed, options.sequence, options.vocab, options.roots);
  }
  CHECK(std::holds_alternative<SyntheticData>(options.source)) << "no data source";
  return SyntheticSplits(options.sequence, options.vocab, options.seed);
}

}  // namespace trainyard
