#include "models/layers/mamba.h"

#include <cmath>

namespace trainyard {
namespace {

// Divided over the tensor ranks by heads.
ParameterSpec OfHeads(const std::string& name, int64_t heads, Init init) {
  return {.name = name,
          .shape = {heads},
          .shard = Shard::Rows(kTensorAxes),
          .init = init,
          .unrounded = true};
}

}  // namespace

Mamba::Mamba(const std::string& name, const MambaOptions& o)
    : options_(o),
      in_({{.name = name + ".in_proj",
            .width = 2 * o.heads * o.head_dim + 2 * o.groups * o.state + o.heads,
            .sections = {o.heads * o.head_dim, o.heads * o.head_dim, o.groups * o.state,
                         o.groups * o.state, o.heads}}},
          o.hidden, /*bias=*/false, o.in),
      dt_bias_(OfHeads(name + ".dt_bias", o.heads,
                       Init::TimeSteps({o.init_min_step, o.init_max_step, o.init_step_floor}))),
      a_log_(OfHeads(name + ".A_log", o.heads, Init::LogIndex())),
      d_(OfHeads(name + ".D", o.heads, Init::Ones())),
      gain_{.name = name + ".norm.weight",
            .shape = {o.heads * o.head_dim},
            .shard = Shard::Rows(kTensorAxes),
            .init = Init::Ones()},
      out_({.name = name + ".out_proj",
            .in = o.heads * o.head_dim,
            .out = o.hidden,
            .init = o.out}) {
  const int64_t inner = o.heads * o.head_dim, of_groups = o.groups * o.state;
  const Shard shard = Shard::Rows(kTensorAxes, {inner, of_groups, of_groups});
  // The deviation of a uniform distribution within 1 / sqrt(taps), as in the public code.
  conv_weight_ = {.name = name + ".conv1d.weight",
                  .shape = {inner + 2 * of_groups, 1, o.taps},
                  .shard = shard,
                  .init = Init::Normal(1 / std::sqrt(3.0 * double(o.taps))),
                  .decay = true};
  conv_bias_ = {.name = name + ".conv1d.bias", .shape = {inner + 2 * of_groups}, .shard = shard};
}

Value Mamba::operator()(Recorder& recorder, Value u) const {
  const MambaOptions& o = options_;
  const int64_t ranks = recorder.mesh().size(kTensorAxes);
  CHECK(o.heads % o.groups == 0 && o.groups % ranks == 0)
      << "mamba groups: " << o.groups << " of " << o.heads << " heads for " << ranks
      << " tensor ranks";
  const StateDims dims{.heads = o.heads / ranks,
                       .groups = o.groups / ranks,
                       .head_dim = o.head_dim,
                       .state = o.state,
                       .sequence = ops::RowsOfPart(recorder),
                       .min_step = o.min_step,
                       .max_step = o.max_step};
  recorder.set_label("mamba");
  const std::vector<Value> parts =
      ops::SplitColumns(recorder, in_(recorder, u), {dims.inner(), dims.columns(), dims.heads});
  const Value conv_weight = recorder.Parameter(conv_weight_);
  const Value conv_bias = recorder.Parameter(conv_bias_);
  const Value positions = ops::DocumentPositions(recorder);
  const Value xbc = ops::CausalConv(recorder, parts[1], conv_weight, conv_bias, positions);
  recorder.set_label("scan");
  const ops::StateScanInputs inputs{.xbc = xbc,
                                    .dt = parts[2],
                                    .dt_bias = recorder.Parameter(dt_bias_),
                                    .a_log = recorder.Parameter(a_log_),
                                    .d = recorder.Parameter(d_),
                                    .positions = positions};
  const Value y = ops::StateScan(recorder, inputs, dims);
  recorder.set_label("mamba");
  const ops::GatedNormInputs gated{.x = y, .z = parts[0], .gain = recorder.Parameter(gain_)};
  return out_(recorder, ops::GatedNorm(recorder, gated, dims.groups, o.norm_eps));
}

}  // namespace trainyard
