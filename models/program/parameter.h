// Parameters: declared once, read by the initialiser, the memory plan, the gradient reduction, the
// optimizer, checkpoints and import.
//
// All parameters of a rank lie flat, block by block, in a few buffers (FlatBuffer). Parameters that
// one matrix product uses together (query, key and value; gate and up) share a *storage*: one
// tensor, each parameter a range of its rows. Stacked ones (a layer's experts) share a tensor of
// rank 3, whose dim 0 counts what is stacked: each has the rows of all parameters. A rank's piece
// of a parameter is a `ParameterBox`.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/tensor.h"
#include "models/parallel/axis.h"
#include "models/parallel/mesh.h"
#include "models/parallel/shard.h"
#include "models/program/value.h"

namespace trainyard {

struct Init {
  enum class Kind : uint8_t { kZeros, kOnes, kNormal };
  Kind kind = Kind::kZeros;
  double deviation = 0;  // Of kNormal.

  static constexpr Init Zeros() { return {}; }
  static constexpr Init Ones() { return {Kind::kOnes, 0}; }
  static constexpr Init Normal(double deviation) { return {Kind::kNormal, deviation}; }
  bool operator==(const Init&) const = default;
};

// The declaration. Matrices are [out, in], rows contiguous.
struct ParameterSpec {
  std::string name;  // The public checkpoint's name; global, unique.
  Shape shape;       // Global.
  Shard shard = {};
  Init init = {};
  bool decay = false;  // Weight decay: of matrices and embeddings, not of gains and biases.
  // Of the bias of a gate's choice (kernels/balance_bias.h): its "gradient" is what each expert was
  // chosen above the mean, and a step moves it by so much. AdamW and the gradient norm leave it
  // out.
  std::optional<double> balance_rate = {};
  // Dim 0 numbers tensors of their own, which are the parameters that others see: "*" in the name
  // stands for the number. Divided by number alone, if at all.
  bool stacked = false;
  bool operator==(const ParameterSpec&) const = default;
};

// The buffers in which all parameters lie. There are two flat coordinates of a rank's trainable
// parameters: of all of them, and of what the rank updates, which is all of them or the shard that
// ZeRO leaves it (Bucket). The first three buffers are addressed by the latter, the others by the
// former; Program::place says what of it is there. Frozen parameters have a third coordinate, of
// kFrozen alone, which counts bytes.
enum class FlatBuffer : uint8_t {
  kMaster,        // Master dtype: what the optimizer updates and checkpoints hold.
  kFirstMoment,   // Master dtype: AdamW's m.
  kSecondMoment,  // Master dtype: AdamW's v.
  kGradient,      // Accumulate dtype: sums over micro-batches and, in the end, ranks.
  kCompute,       // Compute dtype: what forward and backward read. The master itself where that is
                  // whole and of the same dtype.
  // With ZeRO FULL the two above hold this rank's shard, and these what is whole for a while:
  kGradientWindow,  // Accumulate dtype: gradients of one micro-batch, of blocks under way.
  kComputeWindow,   // Compute dtype: weights of the blocks that were gathered.
  kReduced,  // Reduce dtype, where that is not the accumulate dtype: a bucket's gradients on their
             // way to other ranks.
  kFrozen,   // Each parameter in its own dtype: those that no step changes, whole on every rank
             // that computes with them. The only copy of them.
};
inline constexpr int kNumFlatBuffers = 9;

struct FlatRange {
  int64_t offset = 0;  // In elements from the start of a flat buffer; in bytes of kFrozen.
  int64_t elements = 0;

  int64_t end() const { return offset + elements; }
  bool empty() const { return elements == 0; }
  // Empty where they do not meet.
  FlatRange Intersect(const FlatRange& o) const {
    const int64_t begin = std::max(offset, o.offset), last = std::min(end(), o.end());
    return begin < last ? FlatRange{begin, last - begin} : FlatRange{begin, 0};
  }
  bool operator==(const FlatRange&) const = default;
};

// A rank's piece of one parameter, a box of the global tensor: elements [offset, offset + shape) of
// each dim, rows contiguous at `flat`. One box a parameter, or one a section where a sharded dim
// has sections; more where only a part of that is meant (Clip).
struct ParameterBox {
  std::string name;
  Shape global_shape;
  Shape offset;  // Of the box within the global tensor, per dim.
  Shape shape;   // Of the box.
  FlatRange flat = {};
  Init init = {};
  std::optional<DType> frozen = {};  // As of its storage; `flat` then is a range of kFrozen.
  bool decay = false;
  bool balanced = false;  // By balance_rate.
  int block = 0;
  AxisSet shard_axes = {};   // The axes over which the parameter is divided.
  AxisSet copy_axes = {};    // Ranks that differ along these hold the same.
  AxisSet reduce_axes = {};  // The axes over which its gradient is summed.
};

// One tensor of one or more parameters that are used together.
struct ParameterStorage {
  Value weight = {};
  Value gradient = {};  // Invalid in an inference program, and of a frozen storage.
  Shape shape;          // On this rank.
  FlatRange flat = {};
  // The dtype in which a frozen storage lies, which no step changes: it has no gradient, master
  // weights or moments. Absent: trainable.
  std::optional<DType> frozen = {};
  bool decay = false;
  int block = 0;
  bool used = false;     // `varying` is known.
  AxisSet varying = {};  // Along which the gradients of the activations that it meets differ; the
                         // same for all uses.
  bool tied = false;     // Several pipeline stages hold it.
  std::vector<ParameterSpec> parameters;

  // The axes over which the gradient of one of its parameters is summed.
  AxisSet ReduceAxes(const ParameterSpec& spec) const { return varying - spec.shard.axes; }
};

// The boxes of a storage's parameters on the mesh's rank, in the order of their rows; of stacked
// ones, a box for each tensor.
std::vector<ParameterBox> BoxesOf(const ParameterStorage& storage, const Mesh& mesh);

// Those of a rank's boxes, which are in the order of their places, that lie within a flat range, if
// only in part.
std::span<const ParameterBox> Within(std::span<const ParameterBox> boxes, const FlatRange& range);

// The part of a box that lies within a flat range, as boxes: at most 2 rank - 1 of them, in order.
std::vector<ParameterBox> Clip(const ParameterBox& box, const FlatRange& range);

// The shape of this rank's piece of a parameter. CHECKs that the mesh divides it.
Shape LocalShape(const ParameterSpec& spec, const Mesh& mesh);

}  // namespace trainyard
