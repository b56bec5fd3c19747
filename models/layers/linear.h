// Linear layers: the two kinds that tensor parallelism knows (Shoeybi et al. 2019,
// arXiv:1909.08053).
//
// A ColumnLinear's outputs are divided over the tensor ranks (rows of the [out, in] weight), a
// RowLinear's inputs (columns). What is outside such a pair is divided over them by rows (sequence
// parallelism, Korthikanti et al. 2022, arXiv:2205.05198): the first gathers, the second sums and
// scatters. n: tensor ranks.

#pragma once

#include <string>
#include <vector>

#include "models/program/parameter.h"
#include "models/program/recorder.h"

namespace trainyard {

// A piece of the output with a name of its own in the checkpoint.
struct LinearPart {
  std::string name;  // Without ".weight": "model.layers.0.self_attn.q_proj".
  int64_t width;
  int sections = 1;  // A name that holds several pieces (query, key and value).
  // Key or value heads, of which there may be fewer than tensor ranks: some then hold the same.
  bool key_value = false;
};

class ColumnLinear {
 public:
  // The parts share one storage: their outputs follow one another. Where some of them are frozen,
  // neighbours that are alike share one, and each such storage has a product of its own.
  ColumnLinear(const std::vector<LinearPart>& parts, int64_t in, bool bias, Init init);
  // x [T, in] to [n T, sum of widths / n].
  Value operator()(Recorder& recorder, Value x) const;

 private:
  std::vector<ParameterSpec> weights_;
  std::vector<ParameterSpec> biases_;  // Empty: none.
};

struct RowLinearOptions {
  std::string name;  // Without ".weight".
  int64_t in;
  int64_t out;
  bool bias = false;
  Init init;
};

class RowLinear {
 public:
  explicit RowLinear(const RowLinearOptions& options);
  // x [n T, in / n] to [T, out].
  Value operator()(Recorder& recorder, Value x) const;

 private:
  ParameterSpec weight_;
  std::vector<ParameterSpec> bias_;  // Empty: none.
};

}  // namespace trainyard
