// Records a model's forward pass as a program. The recording has shapes only and needs no device.
// Not thread-safe.
//
// Wrong use CHECK-fails with the name of the value. For example, an op's inputs must have gradients
// that vary along the same axes, and all uses of a parameter must agree on the axes over which its
// gradient is summed.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/narrow.h"
#include "kernels/loss/preference.h"
#include "models/program/carried.h"
#include "models/program/input.h"
#include "models/program/low_rank.h"
#include "models/program/op.h"
#include "models/program/program.h"

namespace trainyard {

// How often weights are rounded for products in 8 bits. The bits are the same.
struct WeightRounding {
  // Of a step. If there are several, the first one finds the greatest values of weights for all.
  int64_t micro_batches = 1;
  // ZeRO FULL has weights in windows, for one micro-batch at a time. Otherwise the greatest values
  // of frozen weights are found once, unless their scales follow from earlier steps.
  bool in_windows = false;
  // Rounded weights are kept, too: those of a step with several micro-batches to its end, and those
  // of frozen weights as long as their greatest values. Not in windows.
  bool kept = false;
};

// A value that was rounded to an operand's 8-bit format (ops/quantize.h).
struct Quantized {
  Value of = {};          // What was rounded.
  Value values = {};      // The shape of `of`, in the format's dtype.
  Value by_columns = {};  // The transpose of `values`.
  Value scales = {};
  Value amax = {};  // The greatest values from which the scales follow; `history`, if there is one.
  ScaleBlock block = {};
  Value history = {};  // From which the scale follows, if from earlier steps.
};

class Recorder {
 public:
  // A value that an emitted instance writes: a new one, or an existing one (a parameter's
  // gradient).
  struct Output {
    Shape shape = {};
    DType dtype = DType::kF32;
    std::string name = {};
    bool differentiable = true;           // false: statistics, indices.
    std::optional<AxisSet> varying = {};  // Absent: as the inputs.
    Value existing = {};                  // If valid, the rest is ignored.

    static Output Into(Value value) { return {.existing = value}; }
    // Memory for the op itself: statistics, indices, working space.
    static Output Memory(std::string name, const Shape& shape, DType dtype) {
      return {.shape = shape, .dtype = dtype, .name = std::move(name), .differentiable = false};
    }
  };

  // Whether a training program freezes the parameter. Null: no parameter is frozen.
  using IsFrozen = std::function<bool(const ParameterSpec&)>;

  Recorder(const Precision& precision, const Mesh& mesh, bool training,
           IsFrozen is_frozen = nullptr);

  const Precision& precision() const { return program_.precision; }
  const Mesh& mesh() const { return program_.mesh; }
  const Program& program() const { return program_; }
  const ValueInfo& info(Value value) const { return program_.info(value); }

  // The low-rank adapters of layers. None, unless they are set.
  void set_adapter(LowRank adapter) { adapter_ = std::move(adapter); }
  const LowRank& adapter() const { return adapter_; }
  bool Adapts(const ParameterSpec& weight) const {
    if (adapter_.rank == 0) return false;
    return adapter_.adapts ? adapter_.adapts(TargetOf(AdaptedLayerOf(weight))) : !weight.stacked;
  }

  // Whether this weight of a linear layer or of experts is kept in NF4 (ops::Weight).
  bool IsInNf4(const ParameterSpec& weight) const { return adapter_.nf4 && Frozen(weight); }

  void set_weight_rounding(const WeightRounding& rounding) {
    CHECK(!rounding.kept || !rounding.in_windows) << "rounded weights of windows are not kept";
    weight_rounding_ = rounding;
  }
  const WeightRounding& weight_rounding() const { return weight_rounding_; }

  // The loss of models of text, of pairs of answers. None, unless it is set.
  void set_preference(const std::optional<PreferenceOptions>& options) { preference_ = options; }
  const std::optional<PreferenceOptions>& preference() const { return preference_; }

  // Sets the inputs that Read may be asked for.
  void Declare(std::vector<InputSpec> inputs) { declared_ = std::move(inputs); }
  bool Declares(absl::string_view name) const { return FindInput(declared_, name) != nullptr; }
  // Returns a declared input: [rows, shape of a unit], a row for each of this rank's tokens or
  // samples. Any block may read an input. Each chunk of the model has its own value for it, so
  // inputs do not cross the cuts.
  Value Read(absl::string_view name);
  // Does the same for an input that the model need not declare.
  Value Read(const InputSpec& input);
  // Adds an input that the host writes before each micro-batch. `varying`: the axes along which it
  // differs.
  Value Input(const std::string& name, const Shape& shape, DType dtype, AxisSet varying);
  // Keeps the value in memory after forward, under this name.
  void KeepOutput(const std::string& name, Value value);

  // Adds an activation that no instance computes, because another rank sends it. All else is as in
  // `like`.
  Value Leaf(Value like, const std::string& name);
  // Ends a chunk of the model with the values that the current block returns. Returns the values
  // from which the next chunk starts. That chunk may be on another pipeline stage.
  Carried Cut(const Carried& left);

  // Declares one storage for all `specs`, whose rows follow one another. The specs must agree on
  // trailing dims, decay and stacked, and all or none must be frozen (Frozen). If the same specs
  // are declared again, returns the same storage (tied weights).
  Value Parameters(const std::vector<ParameterSpec>& specs) { return Declare(specs, {}); }
  Value Parameter(const ParameterSpec& spec) { return Parameters({spec}); }
  // The same for weights that only linear layers or lookups read: of Precision::narrow_weight.
  Value Weights(const std::vector<ParameterSpec>& specs) {
    return Declare(specs, precision().narrow_weight);
  }
  bool Frozen(const ParameterSpec& spec) const {
    if (spec.packed) return true;
    return is_frozen_ && !spec.is_history() && is_frozen_(spec);
  }
  // Returns the gradient of a trainable parameter storage.
  Value Gradient(Value parameter) const;
  // Whether backward has to compute the gradient of a parameter storage.
  bool IsTrainable(Value parameter) const { return info(parameter).differentiable; }
  // Returns the output for a gradient that an op always writes: the parameter's gradient, or unused
  // memory if the storage is frozen.
  Output GradientOutput(Value parameter) const;

  // Appends an instance to the current list, block and label, and returns its outputs. New outputs
  // vary along the same axes as the inputs that are activations or host inputs; these must agree.
  // If there are no such inputs, the gradients of parameters among the inputs vary as the first
  // output says.
  std::vector<Value> Emit(std::shared_ptr<const Op> op, std::vector<Value> inputs,
                          const std::vector<Output>& outputs);
  // Appends an instance without values to `list`. Such an instance works on flat buffers or
  // StepState.
  void EmitEffect(std::shared_ptr<const Op> op, List list);
  // Appends an instance to list kPrepare, whose outputs are constants. If the same op with the same
  // attributes and shapes was emitted before, returns its constants.
  std::vector<Value> EmitConstants(std::shared_ptr<const Op> op,
                                   const std::vector<Output>& outputs);

  // The values that were rounded so far, to find a value that was rounded in the same way before,
  // and from a rounded value the original. An entry is never removed.
  std::vector<Quantized>& quantized() { return quantized_; }
  // By history and by the value that it is of: the value's greatest number in this micro-batch,
  // which RecordBackward adds to the history.
  std::map<std::pair<Value, Value>, Value>& amax_of_history() { return amax_of_history_; }

  void set_block(int block) { block_ = block; }
  void set_label(absl::string_view label) { label_ = std::string(label); }
  // The kind of the products of linear layers from here on: kPlain where a recipe leaves them wide.
  void set_layer_kind(ProductKind kind) { layer_kind_ = kind; }
  void set_list(List list) { list_ = list; }
  void set_when(When when) { when_ = when; }
  int block() const { return block_; }
  ProductKind layer_kind() const { return layer_kind_; }
  List list() const { return list_; }

  SequencePart part() const { return program_.sequence_part(); }

  // Ends the recording.
  Program Finish() && { return std::move(program_); }
  Program& mutable_program() { return program_; }  // For passes.

 private:
  Value Declare(const std::vector<ParameterSpec>& specs, std::optional<DType> narrow);
  Value NewValue(ValueInfo info);
  Value InputOfChunk(const std::string& name) const;
  std::optional<AxisSet> CommonVarying(const Op& op, const std::vector<Value>& inputs) const;
  void MeetParameters(const Op& op, const std::vector<Value>& inputs, AxisSet varying);

  const IsFrozen is_frozen_;
  LowRank adapter_;
  WeightRounding weight_rounding_;
  std::optional<PreferenceOptions> preference_;
  Program program_;
  std::vector<InputSpec> declared_;
  List list_ = List::kForward;
  When when_ = When::kAlways;
  int block_ = 0;
  ProductKind layer_kind_ = ProductKind::kLayer;
  std::string label_;
  std::map<std::string, int> storage_of_;                // By parameter name.
  std::map<std::string, std::vector<Value>> constants_;  // By op, attributes and shapes.
  std::vector<Quantized> quantized_;
  std::map<std::pair<Value, Value>, Value> amax_of_history_;
};

}  // namespace trainyard
