// Tables of vectors: the vocabulary's, which may serve as output projection, too, and learned
// positions.

#pragma once

#include <string>

#include "models/program/parameter.h"
#include "models/program/recorder.h"

namespace trainyard {

// The vocabulary is divided over the tensor ranks. D-wide activations are divided over them, too,
// by rows (sequence parallelism, Korthikanti et al. 2022, arXiv:2205.05198); T counts this rank's.
class VocabularyTable {
 public:
  // `name` without ".weight".
  VocabularyTable(const std::string& name, int64_t vocab, int64_t width, Init init);
  Value Embed(Recorder& recorder, Value tokens) const;  // i32 [n T] to [T, D].
  Value Weight(Recorder& recorder) const;               // This rank's rows: [V/n, D].

 private:
  ParameterSpec table_;
};

class PositionTable {
 public:
  PositionTable(const std::string& name, int64_t positions, int64_t width, Init init);
  // The vectors of the positions of this rank's part of the tokens [n T]: [T, D].
  Value Embed(Recorder& recorder, Value tokens) const;

 private:
  ParameterSpec table_;
};

}  // namespace trainyard
