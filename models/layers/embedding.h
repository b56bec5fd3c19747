// Tables of vectors: the embedding of the vocabulary, which may also serve as the output
// projection, and learned positions.

#pragma once

#include <string>

#include "models/program/parameter.h"
#include "models/program/recorder.h"

namespace trainyard {

// The vocabulary is divided over the tensor ranks. Activations of width D are divided over the
// tensor ranks by rows (sequence parallelism, Korthikanti et al. 2022, arXiv:2205.05198). T counts
// the rows of this rank.
class VocabularyTable {
 public:
  // `name` is the parameter's name without ".weight". `padding` is the number of rows after the
  // vocabulary that stand for no id (ParameterSpec::padding).
  VocabularyTable(const std::string& name, int64_t vocab, int64_t width, Init init,
                  int64_t padding = 0);
  // i32 [n T] to [T, D]. Rows are multiplied by `scale`. Embedding `padding_token` gives its row no
  // gradient; -1: every row has one.
  Value Embed(Recorder& recorder, Value tokens, double scale = 1, int64_t padding_token = -1) const;
  Value Weight(Recorder& recorder) const;  // This rank's rows: [V/n, D], with the padding.

 private:
  ParameterSpec table_;
};

class PositionTable {
 public:
  PositionTable(const std::string& name, int64_t positions, int64_t width, Init init);
  // Returns the vectors of the positions of this rank's part of the tokens [n T]: [T, D].
  Value Embed(Recorder& recorder, Value tokens) const;

 private:
  ParameterSpec table_;
};

}  // namespace trainyard
