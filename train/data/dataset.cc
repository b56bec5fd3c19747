#include "train/data/dataset.h"

#include "common/check.h"
#include "common/status_macros.h"
#include "train/data/arrays.h"
#include "train/data/blend.h"
#include "train/data/indexed.h"
#include "train/data/synthetic.h"
#include "train/data/text.h"
#include "train/data/token_stream.h"

namespace trainyard {
namespace {

int64_t VocabularyOf(const std::vector<InputSpec>& inputs) {
  const InputSpec* const tokens = FindInput(inputs, "tokens");
  CHECK(tokens != nullptr) << "the model reads no tokens";
  return tokens->limit;
}

}  // namespace

absl::StatusOr<DataSplits> OpenData(const DataOptions& options) {
  CHECK(options.sequence > 0) << options.sequence;
  if (const auto* arrays = std::get_if<ArraysData>(&options.source)) {
    return OpenArrays(*arrays, options);
  }
  const int64_t vocab = VocabularyOf(options.inputs);
  if (const auto* text = std::get_if<TextData>(&options.source)) {
    ASSIGN_OR_RETURN(const SplitStream split, OpenText(*text, options.roots));
    return CutStream(split, options.sequence);
  }
  if (const auto* indexed = std::get_if<IndexedData>(&options.source)) {
    ASSIGN_OR_RETURN(const SplitStream split, OpenIndexed(*indexed, vocab, options.roots));
    ASSIGN_OR_RETURN(DataSplits splits, CutStream(split, options.sequence));
    splits.streams = {split.stream};
    return splits;
  }
  if (const auto* blend = std::get_if<BlendData>(&options.source)) {
    return OpenBlend(*blend, vocab, options);
  }
  CHECK(std::holds_alternative<SyntheticData>(options.source)) << "no data source";
  return SyntheticSplits(options.sequence, vocab, options.seed);
}

}  // namespace trainyard
