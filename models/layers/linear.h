// Linear layers, and how tensor parallelism divides them (Shoeybi et al. 2019, arXiv:1909.08053).
//
// A ColumnLinear divides its outputs over the tensor ranks: each rank has some rows of the weight,
// which is [out, in]. A RowLinear divides its inputs: each rank has some columns of the weight.
// Outside a pair of the two, the tensor ranks divide activations by rows (sequence parallelism,
// Korthikanti et al. 2022, arXiv:2205.05198): the ColumnLinear gathers the rows, and the RowLinear
// sums and scatters them. A WholeLinear is not divided. n is the number of tensor ranks.

#pragma once

#include <string>
#include <vector>

#include "models/program/parameter.h"
#include "models/program/recorder.h"

namespace trainyard {

// A part of the output that has its own name in the checkpoint.
struct LinearPart {
  std::string name;  // Without ".weight": "model.layers.0.self_attn.q_proj".
  int64_t width;
  // The widths of pieces under this name (query, key and value). Empty: the part is one piece.
  std::vector<int64_t> sections = {};
  // Whether the part is key or value heads. If there are more tensor ranks than heads, several
  // ranks hold the same head.
  bool key_value = false;
};

class ColumnLinear {
 public:
  // The parts share one storage, so that their outputs follow one another. If some parts are frozen
  // or have a low-rank adapter, neighbouring parts share a storage only if this holds for all or
  // none of them, and each storage has its own product.
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

// Every rank has the whole weight. Used if the matrix is narrow, or if the rows are samples, which
// are few. The layer has a bias.
struct WholeLinear {
  std::string name;  // Without ".weight".
  int64_t in;
  int64_t out;
  Init init;

  // x [rows, in] to [rows, out].
  Value operator()(Recorder& recorder, Value x) const;
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
