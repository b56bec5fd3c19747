#include "models/layers/embedding.h"

#include "models/program/ops/ops.h"

namespace trainyard {

VocabularyTable::VocabularyTable(const std::string& name, int64_t vocab, int64_t width, Init init,
                                 int64_t padding)
    : table_{.name = name + ".weight",
             .shape = {vocab, width},
             .shard = Shard::Rows(kTensorAxes),
             .init = init,
             .decay = true,
             .padding = padding} {}

Value VocabularyTable::Embed(Recorder& recorder, Value tokens, double scale,
                             int64_t padding_token) const {
  const Value rows = ops::Embedding(recorder, Weight(recorder), tokens, scale, padding_token);
  return ops::ReduceScatter(recorder, rows, kTensorAxes);
}

Value VocabularyTable::Weight(Recorder& recorder) const { return recorder.Weights({table_}); }

PositionTable::PositionTable(const std::string& name, int64_t positions, int64_t width, Init init)
    : table_{.name = name + ".weight", .shape = {positions, width}, .init = init, .decay = true} {}

Value PositionTable::Embed(Recorder& recorder, Value tokens) const {
  return ops::Embedding(recorder, recorder.Parameter(table_), ops::Positions(recorder, tokens));
}

}  // namespace trainyard
