#include "tests/models/conditioned.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/layers/attention.h"
#include "models/layers/embedding.h"
#include "models/layers/linear.h"
#include "models/layers/mlp.h"
#include "models/layers/norm.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::testing {
namespace {

// The axes along which the rows of a sample are divided.
constexpr AxisSet kRowAxes = kTensorAxes | Axis::kContext;
constexpr AxisSet kSampleAxes = {Axis::kExpert, Axis::kData};

Value SumSamples(Recorder& recorder, Value rows);
Value SpreadSamples(Recorder& recorder, Value samples);

// Rows [T, D] of this rank and samples [B, D]: the sum of each sample's rows on all of its ranks,
// or the sample's row for each of its rows. Each is the other's backward.
class SampleRowsOp final : public Op {
 public:
  SampleRowsOp(bool sums, int64_t first_row, int64_t sample_rows, AxisSet axes)
      : sums_(sums), first_row_(first_row), sample_rows_(sample_rows), axes_(axes) {}

  absl::string_view name() const override { return sums_ ? "sum_samples" : "spread_samples"; }
  AxisSet group() const override { return sums_ ? axes_ : AxisSet{}; }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    if (group().empty()) return {};
    return {CallsOf(CollectiveOp::kAllReduceSum, 1,
                    int64_t(program.info(instance.outputs[0]).bytes()), program.mesh.size(axes_))};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor x = binder.tensor(instance.inputs[0]), y = binder.tensor(instance.outputs[0]);
    Collective* const group = this->group().empty() ? nullptr : &binder.collective(axes_);
    return [this_op = *this, x, y, group](Exec&) {
      this_op.Compute(x, y);
      if (group != nullptr) group->AllReduceSum(y);
    };
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance&,
                              std::span<const Value> output_grads) const override {
    return {sums_ ? SpreadSamples(recorder, output_grads[0])
                  : SumSamples(recorder, output_grads[0])};
  }

 private:
  void Compute(const Tensor& x, const Tensor& y) const {
    const int64_t width = x.shape[1], rows = (sums_ ? x : y).shape[0];
    double* const to = y.as<double>();
    const double* const from = x.as<double>();
    if (sums_) std::fill_n(to, y.elements(), 0.0);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t sample = (first_row_ + i) / sample_rows_;
      for (int64_t d = 0; d < width; ++d) {
        if (sums_) {
          to[sample * width + d] += from[i * width + d];
        } else {
          to[i * width + d] = from[sample * width + d];
        }
      }
    }
  }

  bool sums_;
  int64_t first_row_,
      sample_rows_;  // Of this tensor rank's rows; of a sample, on its context rank.
  AxisSet axes_;
};

Value EmitSampleRows(Recorder& recorder, Value x, bool sums) {
  const Program& program = recorder.program();
  const Mesh& mesh = recorder.mesh();
  const ValueInfo info = recorder.info(x);
  const AxisSet axes = kRowAxes & mesh.active();
  const int64_t rows = program.tokens() / mesh.size(kTensorAxes);
  CHECK(info.varying == ((sums ? kRowAxes | kSampleAxes : kSampleAxes) & mesh.active())) << info;
  const auto op = std::make_shared<SampleRowsOp>(sums, mesh.coordinate(kTensorAxes) * rows,
                                                 program.sequence_rows(), axes);
  const AxisSet varying = sums ? AxisSet{} : axes;
  return recorder.Emit(op, {x},
                       {{.shape = info.shape.With(0, sums ? program.micro_batch : rows),
                         .dtype = info.dtype,
                         .name = sums ? "sums" : "spread",
                         .varying = (kSampleAxes & mesh.active()) | varying}})[0];
}

Value SumSamples(Recorder& recorder, Value rows) { return EmitSampleRows(recorder, rows, true); }
Value SpreadSamples(Recorder& recorder, Value samples) {
  return EmitSampleRows(recorder, samples, false);
}

Init Random() { return Init::Normal(0.3); }

class Conditioned final : public Model {
 public:
  explicit Conditioned(const DecoderConfig& sizes)
      : sizes_(sizes),
        embedding_("embedding", sizes.vocab, sizes.hidden, Random()),
        output_("output", sizes.vocab, sizes.hidden, Random()) {}

  int64_t layers() const override { return sizes_.layers; }
  int64_t max_sequence() const override { return sizes_.max_seq; }

  std::vector<InputSpec> inputs() const override {
    return {{.name = "tokens", .limit = sizes_.vocab},
            {.name = "targets", .limit = sizes_.vocab},
            {.name = "class", .unit = InputSpec::Unit::kSample, .limit = sizes_.vocab},
            {.name = "level",
             .unit = InputSpec::Unit::kSample,
             .kind = InputSpec::Kind::kReal,
             .shape = {sizes_.hidden}}};
  }

  Carried Start(Recorder& recorder) const override {
    const Value x = embedding_.Embed(recorder, recorder.Read("tokens"));
    const Value sums = Linear(recorder, "embed", SumSamples(recorder, x));
    const Value table = recorder.Parameter(
        {.name = "class", .shape = {sizes_.vocab, sizes_.hidden}, .init = Random()});
    const Value of_class = ops::Embedding(recorder, table, recorder.Read("class"));
    return Carried({{"x", x}, {"condition", ops::Add(recorder, sums, of_class)}});
  }

  Carried Block(Recorder& recorder, int64_t layer, const Carried& carried) const override {
    const std::string name = absl::StrCat("layer.", layer);
    Value x = carried["x"], condition = carried["condition"];
    recorder.set_label("attention");
    Value normed = RmsNorm(name + ".norm", sizes_.hidden, 1e-5)(recorder, x);
    if (ReadsCondition(layer)) {
      recorder.set_label("condition");
      // Wherever this block is.
      const Value level = Linear(recorder, name + ".level", recorder.Read("level"));
      const Value shift = ops::Add(recorder, Linear(recorder, name + ".shift", condition), level);
      normed = ops::Add(recorder, normed, SpreadSamples(recorder, shift));
      // Of the last that reads it nobody needs this.
      condition = ops::Add(recorder, condition, shift);
    }
    recorder.set_label("attention");
    x = ops::Add(recorder, x, AttentionOf(name)(recorder, normed));
    recorder.set_label("mlp");
    x = ops::Add(recorder, x, MlpOf(name)(recorder, x));
    return Carried({{"x", x}, {"condition", condition}});
  }

  void Loss(Recorder& recorder, const Carried& carried) const override {
    ops::LinearCrossEntropy(recorder, carried["x"], output_.Weight(recorder),
                            recorder.Read("targets"), kTensorAxes);
  }
  void KeepOutputs(Recorder& recorder, const Carried& carried) const override {
    recorder.KeepOutput("x", carried["x"]);
  }

 private:
  Value Linear(Recorder& recorder, const std::string& name, Value x) const {
    return ops::Linear(recorder, x,
                       recorder.Parameter({.name = name + ".weight",
                                           .shape = {sizes_.hidden, sizes_.hidden},
                                           .init = Random(),
                                           .decay = true}));
  }
  Attention AttentionOf(const std::string& name) const {
    const int64_t queries = sizes_.heads * sizes_.head_dim;
    const int64_t keys = sizes_.kv_heads * sizes_.head_dim;
    return Attention(
        {.heads = sizes_.heads,
         .kv_heads = sizes_.kv_heads,
         .head_dim = sizes_.head_dim,
         .rope = ops::RopeTable{.base = 100}},
        ColumnLinear({{name + ".q", queries},
                      {.name = name + ".k", .width = keys, .key_value = true},
                      {.name = name + ".v", .width = keys, .key_value = true}},
                     sizes_.hidden, /*bias=*/false, Random()),
        RowLinear({.name = name + ".o", .in = queries, .out = sizes_.hidden, .init = Random()}));
  }
  Mlp MlpOf(const std::string& name) const {
    return Mlp(
        Activation::kGelu,
        ColumnLinear({{name + ".up", sizes_.ffn}}, sizes_.hidden, /*bias=*/false, Random()),
        RowLinear(
            {.name = name + ".down", .in = sizes_.ffn, .out = sizes_.hidden, .init = Random()}));
  }

  DecoderConfig sizes_;
  VocabularyTable embedding_, output_;
};

}  // namespace

std::unique_ptr<Model> MakeConditioned(const DecoderConfig& sizes) {
  return std::make_unique<Conditioned>(sizes);
}

}  // namespace trainyard::testing
