// Records a model's forward pass as a program: shapes only, no device. Not thread-safe.
//
// Misuse is a programmer error that names the value: inputs of one op whose gradients vary along
// different axes, uses of a parameter that disagree on where its gradient is summed.

#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/program/op.h"
#include "models/program/program.h"

namespace trainyard {

class Recorder {
 public:
  struct Output {
    Shape shape;
    DType dtype;
    std::string name;
    bool differentiable = true;  // false: statistics, indices.
  };

  Recorder(const Precision& precision, const Mesh& mesh, bool training);

  const Precision& precision() const { return program_.precision; }
  const Mesh& mesh() const { return program_.mesh; }
  const Program& program() const { return program_; }
  const ValueInfo& info(Value value) const { return program_.info(value); }

  // Written by the host before each micro-batch. `varying`: the axes along which it differs.
  Value Input(const std::string& name, const Shape& shape, DType dtype, AxisSet varying);
  // Stays in memory after forward under this name.
  void KeepOutput(const std::string& name, Value value);

  // One storage of all `specs`, which must agree on trailing dims, decay and shard: their rows
  // follow one another. Declaring the same specs again gives the same storage (tied weights).
  Value Parameters(const std::vector<ParameterSpec>& specs);
  Value Parameter(const ParameterSpec& spec) { return Parameters({spec}); }
  // Gradient of a parameter storage.
  Value Gradient(Value parameter) const;

  // Appends an instance to the current list, block and label. The outputs' `varying` is that of the
  // inputs that are activations or host inputs, which must agree.
  std::vector<Value> Emit(std::shared_ptr<const Op> op, std::vector<Value> inputs,
                          const std::vector<Output>& outputs);
  Value Emit(std::shared_ptr<const Op> op, std::vector<Value> inputs, const Output& output);
  // As Emit, with outputs that exist: gradients of parameters.
  void EmitInto(std::shared_ptr<const Op> op, std::vector<Value> inputs,
                std::vector<Value> outputs);
  // Emits to list kPrepare, outputs constants. The same op with the same attributes and shapes
  // gives the constants of the first time.
  std::vector<Value> EmitConstants(std::shared_ptr<const Op> op,
                                   const std::vector<Output>& outputs);

  void set_block(int block) { block_ = block; }
  void set_label(absl::string_view label) { label_ = std::string(label); }
  void set_list(List list) { list_ = list; }
  int block() const { return block_; }
  List list() const { return list_; }

  // Ends the recording.
  Program Finish() && { return std::move(program_); }
  Program& mutable_program() { return program_; }  // For passes.

 private:
  Value NewValue(ValueInfo info);
  AxisSet CommonVarying(const Op& op, std::span<const Value> inputs);
  void MeetParameters(const Op& op, std::span<const Value> inputs, AxisSet varying);

  Program program_;
  List list_ = List::kForward;
  int block_ = 0;
  std::string label_;
  std::map<std::string, std::vector<Value>> constants_;  // By op, attributes and shapes.
};

}  // namespace trainyard
