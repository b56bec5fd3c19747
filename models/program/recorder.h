// Records a model's forward pass as a program: shapes only, no device. Not thread-safe.
//
// Misuse is a programmer error that names the value: inputs of one op whose gradients vary along
// different axes, uses of a parameter that disagree on where its gradient is summed.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/program/carried.h"
#include "models/program/input.h"
#include "models/program/op.h"
#include "models/program/program.h"

namespace trainyard {

class Recorder {
 public:
  // What an emitted instance writes: a new value, or one that exists (a parameter's gradient).
  struct Output {
    Shape shape = {};
    DType dtype = DType::kF32;
    std::string name = {};
    bool differentiable = true;           // false: statistics, indices.
    std::optional<AxisSet> varying = {};  // Absent: that of the inputs.
    Value existing = {};                  // If valid, the rest is ignored.

    static Output Into(Value value) { return {.existing = value}; }
    // The op's own: statistics, indices, room to work in.
    static Output Memory(std::string name, const Shape& shape, DType dtype) {
      return {.shape = shape, .dtype = dtype, .name = std::move(name), .differentiable = false};
    }
  };

  // Which of a training program's parameters are frozen; null: none.
  using IsFrozen = std::function<bool(const ParameterSpec&)>;

  Recorder(const Precision& precision, const Mesh& mesh, bool training,
           IsFrozen is_frozen = nullptr);

  const Precision& precision() const { return program_.precision; }
  const Mesh& mesh() const { return program_.mesh; }
  const Program& program() const { return program_; }
  const ValueInfo& info(Value value) const { return program_.info(value); }

  // What Read may be asked for.
  void Declare(std::vector<InputSpec> inputs) { declared_ = std::move(inputs); }
  // A declared input: [rows, shape of a unit], a row for each of this rank's tokens or samples. Any
  // block may read it: each chunk of the model has its own, so that it needs not cross the cuts.
  Value Read(absl::string_view name);
  // Written by the host before each micro-batch. `varying`: the axes along which it differs.
  Value Input(const std::string& name, const Shape& shape, DType dtype, AxisSet varying);
  // Stays in memory after forward under this name.
  void KeepOutput(const std::string& name, Value value);

  // An activation that no instance makes: another rank sends it. All else is as of `like`.
  Value Leaf(Value like, const std::string& name);
  // Ends a chunk of the model with what the current block leaves; returns what the next chunk,
  // which may be on another pipeline stage, starts from.
  Carried Cut(const Carried& left);

  // One storage of all `specs`, which must agree on trailing dims, decay and whether they are
  // stacked: their rows follow one another. All of them are frozen, or none (Frozen). Declaring the
  // same specs again gives the same storage (tied weights).
  Value Parameters(const std::vector<ParameterSpec>& specs);
  Value Parameter(const ParameterSpec& spec) { return Parameters({spec}); }
  bool Frozen(const ParameterSpec& spec) const { return is_frozen_ && is_frozen_(spec); }
  // Gradient of a trainable parameter storage.
  Value Gradient(Value parameter) const;
  // Whether backward has to find the gradient of a parameter storage.
  bool IsTrainable(Value parameter) const { return info(parameter).differentiable; }
  // Where an op writes what it cannot leave out: the gradient of a parameter storage, or memory
  // that nobody reads where the storage is frozen.
  Output GradientOutput(Value parameter) const;

  // Appends an instance to the current list, block and label; returns its outputs. New outputs vary
  // as those inputs do that are activations or host inputs, which must agree.
  std::vector<Value> Emit(std::shared_ptr<const Op> op, std::vector<Value> inputs,
                          const std::vector<Output>& outputs);
  // An instance of `list` without values: it works on flat buffers or StepState.
  void EmitEffect(std::shared_ptr<const Op> op, List list);
  // Emits to list kPrepare, outputs constants. The same op with the same attributes and shapes
  // gives the constants of the first time.
  std::vector<Value> EmitConstants(std::shared_ptr<const Op> op,
                                   const std::vector<Output>& outputs);

  void set_block(int block) { block_ = block; }
  void set_label(absl::string_view label) { label_ = std::string(label); }
  void set_list(List list) { list_ = list; }
  void set_when(When when) { when_ = when; }
  int block() const { return block_; }
  List list() const { return list_; }

  SequencePart part() const { return program_.sequence_part(); }

  // Ends the recording.
  Program Finish() && { return std::move(program_); }
  Program& mutable_program() { return program_; }  // For passes.

 private:
  Value NewValue(ValueInfo info);
  Value InputOfChunk(const std::string& name) const;
  AxisSet CommonVarying(const Op& op, const std::vector<Value>& inputs) const;
  void MeetParameters(const Op& op, const std::vector<Value>& inputs, AxisSet varying);

  const IsFrozen is_frozen_;
  Program program_;
  std::vector<InputSpec> declared_;
  List list_ = List::kForward;
  When when_ = When::kAlways;
  int block_ = 0;
  std::string label_;
  std::map<std::string, int> storage_of_;                // By parameter name.
  std::map<std::string, std::vector<Value>> constants_;  // By op, attributes and shapes.
};

}  // namespace trainyard
