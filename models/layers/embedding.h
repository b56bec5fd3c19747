// Tables of vectors: the vocabulary's, which may serve as output projection, too, and learned
// positions.

#pragma once

#include <string>

#include "models/parameter.h"
#include "models/program/recorder.h"

namespace trainyard {

// The vocabulary is divided over the tensor ranks.
class VocabularyTable {
 public:
  // `name` without ".weight".
  VocabularyTable(const std::string& name, int64_t vocab, int64_t width, Init init);
  Value Embed(Recorder& recorder, Value tokens) const;  // i32 [T] to [T, D].
  Value Logits(Recorder& recorder, Value x) const;      // [T, D] to [T, V], accumulate dtype.

 private:
  ParameterSpec table_;
};

class PositionTable {
 public:
  PositionTable(const std::string& name, int64_t positions, int64_t width, Init init);
  // The vectors of the positions t % sequence of tokens [T]: [T, D].
  Value Embed(Recorder& recorder, Value tokens) const;

 private:
  ParameterSpec table_;
};

}  // namespace trainyard
