// Parameters. Each parameter is declared once; initialiser, memory plan, gradient reduction,
// optimizer, checkpoints and import read the declaration.
//
// All parameters of a rank lie flat, block by block, in a few buffers (FlatBuffer). Parameters that
// one matrix product uses together (query, key and value; gate and up) share a *storage*: one
// tensor in which each parameter has a range of rows. Stacked parameters (a layer's experts) share
// a tensor of rank 3: dim 0 numbers the stacked tensors, and each of these has the rows of all
// parameters. A `ParameterBox` is a rank's piece of a parameter.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/tensor.h"
#include "kernels/device/vocab_slice.h"
#include "kernels/state_space/state_init.h"
#include "models/parallel/axis.h"
#include "models/parallel/mesh.h"
#include "models/parallel/shard.h"
#include "models/program/value.h"

namespace trainyard {

struct Init {
  enum class Kind : uint8_t {
    kZeros,
    kOnes,
    kConstant,
    kNormal,
    kUniform,
    kLogIndex,
    kTimeStep,
    kBytes,
  };
  Kind kind = Kind::kZeros;
  // kConstant: the value. kNormal: standard deviation. kUniform: values are in [-scale, scale].
  double scale = 0;
  StepRange steps = {};  // For kTimeStep.

  static constexpr Init Zeros() { return {}; }
  static constexpr Init Ones() { return {.kind = Kind::kOnes}; }
  static constexpr Init Constant(double value) { return {.kind = Kind::kConstant, .scale = value}; }
  static constexpr Init Normal(double deviation) {
    return {.kind = Kind::kNormal, .scale = deviation};
  }
  static constexpr Init Uniform(double limit) { return {.kind = Kind::kUniform, .scale = limit}; }
  // Random bytes, for packed parts.
  static constexpr Init Bytes() { return {.kind = Kind::kBytes}; }
  // Element i of a vector is log(i + 1).
  static constexpr Init LogIndex() { return {.kind = Kind::kLogIndex}; }
  // The inverse of softplus of random steps (kernels/state_space/state_init.h).
  static constexpr Init TimeSteps(const StepRange& steps) {
    return {.kind = Kind::kTimeStep, .steps = steps};
  }
  bool operator==(const Init&) const = default;
};

// How a step changes a parameter that is state of the run: no gradient of the loss changes it. Its
// "gradient" is what a micro-batch adds to the state. It is initialised, saved and loaded as any
// parameter. It must be `unrounded`, and the optimizer and the gradient norm leave it out.
struct StateRule {
  enum class Kind : uint8_t {
    // The bias of a router's choice (kernels/experts/balance_bias.h). The gradient, a sum, is how
    // much more often than the mean each expert was chosen, and a step changes the bias by `rate`.
    kBalanceBias,
    // The greatest values of a tensor in earlier steps (kernels/products/amax_history.h). The
    // gradient is a maximum, also over ranks. It belongs to the precision: a model does not declare
    // it, and it is never frozen.
    kAmaxHistory,
  };
  Kind kind = Kind::kBalanceBias;
  double rate = 0;  // For kBalanceBias.

  static constexpr StateRule BalanceBias(double rate) {
    return {.kind = Kind::kBalanceBias, .rate = rate};
  }
  static constexpr StateRule AmaxHistory() { return {.kind = Kind::kAmaxHistory}; }
  bool operator==(const StateRule&) const = default;
};

// The format of a parameter that is a part of a frozen weight in fewer bits (nf4.h).
struct PackedPart {
  DType dtype = DType::kU8;
  int64_t numbers = 0;  // Of the weight, that an element has.
  bool operator==(const PackedPart&) const = default;
};

// The declaration. Matrices are [out, in] with contiguous rows.
struct ParameterSpec {
  std::string name;  // The public checkpoint's name; global, unique.
  Shape shape;       // Global.
  Shard shard = {};
  Init init = {};
  bool decay = false;  // Weight decay: for matrices and embeddings, not for gains and biases.
  // Forward and backward read the master weights, which are whole on every rank that computes with
  // them. For a few numbers that rounding would harm: what decides between experts, and logarithms
  // of decays.
  bool unrounded = false;
  std::optional<StateRule> state = {};  // Absent: the optimizer updates the parameter.
  // Dim 0 numbers tensors that are parameters of their own for users, checkpoints and import. "*"
  // in the name stands for the number. Such a parameter can be divided along dim 0 only.
  bool stacked = false;
  // The layer beside which the weight's adapter stands, if that is not the weight's own layer. The
  // experts' gate and up have a joint adapter, whose name this is for both:
  // "model.layers.0.mlp.experts.*.gate_up_proj". The adapter's outputs are those of all weights of
  // the storage, in their order.
  std::string adapted_as = {};
  // Rows of zeroes that memory has after those of `shape`, so that ranks can divide dim 0. No box
  // has these rows, so nobody saves, loads or initialises them. Their gradient must be 0. Each rank
  // must have another row, too.
  int64_t padding = 0;
  // The parameter is always frozen. Absent: it has the precision's format.
  std::optional<PackedPart> packed = {};

  // How many numbers of the model it holds.
  int64_t numbers() const { return shape.elements() * (packed ? packed->numbers : 1); }
  bool is_history() const { return state && state->kind == StateRule::Kind::kAmaxHistory; }
  bool operator==(const ParameterSpec&) const = default;
};

// The buffers in which parameters lie. Each has the format that the precision has for its content
// (Precision).
//
// A rank's trainable parameters have two flat coordinates. One counts all trainable parameters. The
// other counts those that the rank updates: all of them, or the rank's ZeRO shard (Bucket). The
// first four buffers use the second coordinate, and the others the first; Program::place says which
// ranges a buffer holds. Frozen parameters have a third coordinate, for the last two buffers,
// which counts bytes.
enum class FlatBuffer : uint8_t {
  kMaster,        // Masters: updated by the optimizer, saved in checkpoints. If masters are split,
                  // those of unrounded parameters alone.
  kFirstMoment,   // Moments: the optimizer's m. Checkpoints save the moments, too.
  kSecondMoment,  // Moments: the optimizer's v.
  kRemainder,     // Remainders of split masters, whose weights are in kCompute.
  kGradient,      // Gradients: sums over micro-batches and, at the end, over ranks.
  kCompute,       // Weights: read by forward and backward. Not used where the master is whole and
                  // has the same format, nor for unrounded parameters.
  // With ZeRO FULL the two above hold this rank's shard, and the next two hold whole blocks for a
  // while:
  kGradientWindow,  // Gradients of one micro-batch, of the blocks under way.
  kComputeWindow,   // Weights of the gathered blocks.
  kReduced,         // A bucket's gradients while they are sent, if they are sent in another format.
  kFrozen,          // Frozen parameters: no step changes them. Each has its own dtype. With ZeRO
                    // FULL, this rank's shard of most of them (FrozenBucket).
  kFrozenWindow,    // ZeRO FULL: frozen parameters of the gathered blocks.
};
inline constexpr int kNumFlatBuffers = 11;

// The state that an optimizer may keep of a parameter. Which of these buffers exist is declared in
// the optimizer's file (models/program/optimizer/optimizer.h); the others have no elements.
inline constexpr FlatBuffer kStateBuffers[] = {FlatBuffer::kFirstMoment, FlatBuffer::kSecondMoment};

struct FlatRange {
  int64_t offset = 0;  // In elements from the start of a flat buffer; in bytes if frozen.
  int64_t elements = 0;

  int64_t end() const { return offset + elements; }
  bool empty() const { return elements == 0; }
  // Returns an empty range if the two do not overlap.
  FlatRange Intersect(const FlatRange& o) const {
    const int64_t begin = std::max(offset, o.offset), last = std::min(end(), o.end());
    return begin < last ? FlatRange{begin, last - begin} : FlatRange{begin, 0};
  }
  bool operator==(const FlatRange&) const = default;
};

// A rank's piece of one parameter: a box of the global tensor. In each dim it has the elements
// [offset, offset + shape). The box's rows are contiguous at `flat`. A parameter has one box, or
// one for each section if a sharded dim has sections. Clip divides a box into more. Padding is in
// no box.
struct ParameterBox {
  std::string name;
  Shape global_shape;
  Shape offset;  // First element of the box in the global tensor, per dim.
  Shape shape;   // Shape of the box.
  FlatRange flat = {};
  Init init = {};
  std::optional<DType> frozen = {};  // As in the storage. If set, `flat` is a range of kFrozen.
  bool decay = false;
  std::optional<StateRule> state = {};
  int block = 0;
  AxisSet shard_axes = {};   // The axes over which the parameter is divided.
  AxisSet copy_axes = {};    // Ranks that differ along these axes hold the same values.
  AxisSet reduce_axes = {};  // The axes over which the box's gradient is summed.
};

// One tensor of one or more parameters that are used together.
struct ParameterStorage {
  Value weight = {};
  Value gradient = {};  // Invalid in inference programs and if frozen.
  Shape shape;          // Shape on this rank.
  FlatRange flat = {};
  // The dtype of a frozen storage, which no step changes: it has no gradient, master weights or
  // moments. Absent: the storage is trainable.
  std::optional<DType> frozen = {};
  bool decay = false;
  int block = 0;
  bool used = false;     // An instance reads the storage, so `varying` is known.
  AxisSet varying = {};  // The gradients of the activations that meet the storage differ along
                         // these axes. All uses agree.
  bool tied = false;     // Several pipeline stages hold the storage.
  std::vector<ParameterSpec> parameters;

  // The axes over which the gradient of one of its parameters is summed.
  AxisSet ReduceAxes(const ParameterSpec& spec) const { return varying - spec.shard.axes; }
};

// Returns the boxes of a storage's parameters on the mesh's rank, in the order of their rows. For
// stacked parameters, returns a box for each tensor.
std::vector<ParameterBox> BoxesOf(const ParameterStorage& storage, const Mesh& mesh);

// Returns the boxes that overlap a flat range. `boxes` must be in the order of their places.
std::span<const ParameterBox> Within(std::span<const ParameterBox> boxes, const FlatRange& range);

// Returns the part of a box that lies within a flat range, as at most 2 rank - 1 boxes in order.
std::vector<ParameterBox> Clip(const ParameterBox& box, const FlatRange& range);

// The shape of this rank's piece of a parameter, with its padding. CHECKs that the mesh divides it.
Shape LocalShape(const ParameterSpec& spec, const Mesh& mesh);

// The ids that the rows [first, first + count) of a table have, whose rows are a vocabulary's.
VocabSlice SliceOf(const ParameterSpec& table, int64_t first, int64_t count);

}  // namespace trainyard
