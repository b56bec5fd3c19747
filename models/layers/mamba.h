// The mixer of Mamba-2: a state space in the place of attention.
//
//   [z, x, B, C, dt] = u in_proj^T      widths H P, H P, G N, G N, H
//   [x, B, C] = silu(conv([x, B, C]))   causal, each channel by itself
//   y = state space of x, dt, B, C      (kernels/state_space/state_scan.h)
//   out = norm(y silu(z)) out_proj^T    the norm is RMSNorm of each group of columns
//
// Heads and groups are divided over the tensor ranks, so that a rank has whole groups with all of
// their heads. Context ranks have two parts of each sequence. Each rank tells the others the states
// at the ends of its parts, and the last tokens of its parts, which the convolution of the next
// part reads. Documents do not see each other: convolution and state begin anew with each document
// if the data say where documents begin.
//
// Source: Dao & Gu 2024, arXiv:2405.21060, section 7. Letters: H heads, G groups, P head dim, N
// state dim.

#pragma once

#include <limits>
#include <string>

#include "models/layers/linear.h"
#include "models/program/ops/ops.h"
#include "models/program/recorder.h"

namespace trainyard {

struct MambaOptions {
  int64_t hidden;
  int64_t heads;     // H, a multiple of G
  int64_t groups;    // G, a multiple of the number of tensor ranks
  int64_t head_dim;  // P
  int64_t state;     // N
  int64_t taps = 4;  // Of the convolution.
  double norm_eps;
  // Steps are clamped to these limits.
  double min_step = 0;
  double max_step = std::numeric_limits<double>::infinity();
  // Initial steps are drawn log-uniformly from this range, and are at least the floor.
  double init_min_step = 0.001;
  double init_max_step = 0.1;
  double init_step_floor = 1e-4;
  Init in;   // For in_proj.
  Init out;  // For out_proj.
};

class Mamba {
 public:
  // `name` is the prefix of the parameters' names: "backbone.layers.0.mixer". The parameters are
  //   in_proj.weight  [2 H P + 2 G N + H, hidden]
  //   conv1d.weight   [H P + 2 G N, 1, taps]      conv1d.bias  [H P + 2 G N]
  //   A_log, D, dt_bias  [H]
  //   norm.weight     [H P]
  //   out_proj.weight [hidden, H P]
  Mamba(const std::string& name, const MambaOptions& options);
  // u [T, hidden] to [T, hidden]. T must be a whole number of sequences. The label of the state
  // space's instances is "scan", and of all others "mamba".
  Value operator()(Recorder& recorder, Value u) const;

 private:
  MambaOptions options_;
  ColumnLinear in_;
  ParameterSpec conv_weight_, conv_bias_;
  ParameterSpec dt_bias_, a_log_, d_;
  ParameterSpec gain_;
  RowLinear out_;
};

}  // namespace trainyard
