// The axes along which ranks divide the work, and sets of axes.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>

namespace trainyard {

// The axes are in the order of the digits of a rank's number, the innermost first. So tensor ranks
// are neighbours, and pipeline stages are far apart.
enum class Axis : uint8_t {
  kKvReplica,  // Tensor ranks that hold the same key/value heads.
  kTensor,
  kContext,
  kExpert,  // Divides data.
  kData,
  kPipeline,
  kEnds,  // Not a digit: the pipeline stages that share tied weights (Mesh::sharing_stages).
};
inline constexpr std::array<Axis, 6> kAllAxes = {Axis::kKvReplica, Axis::kTensor, Axis::kContext,
                                                 Axis::kExpert,    Axis::kData,   Axis::kPipeline};

constexpr const char* Name(Axis axis) {
  switch (axis) {
    case Axis::kKvReplica:
      return "kv_replica";
    case Axis::kTensor:
      return "tensor";
    case Axis::kContext:
      return "context";
    case Axis::kExpert:
      return "expert";
    case Axis::kData:
      return "data";
    case Axis::kPipeline:
      return "pipeline";
    case Axis::kEnds:
      return "ends";
  }
  return "?";
}

class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(Bit(axis)) {}  // NOLINT: a single axis is a set.
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) bits_ = uint8_t(bits_ | Bit(axis));
  }
  constexpr bool contains(Axis axis) const { return (bits_ & Bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet operator|(AxisSet o) const { return FromBits(bits_ | o.bits_); }
  constexpr AxisSet operator&(AxisSet o) const { return FromBits(bits_ & o.bits_); }
  constexpr AxisSet operator-(AxisSet o) const { return FromBits(bits_ & ~o.bits_); }
  constexpr auto operator<=>(const AxisSet&) const = default;

 private:
  static constexpr AxisSet FromBits(int bits) {
    AxisSet set;
    set.bits_ = uint8_t(bits);
    return set;
  }
  static constexpr uint8_t Bit(Axis axis) { return uint8_t(1u << uint8_t(axis)); }
  uint8_t bits_ = 0;
};

// All tensor ranks. Linear layers and the vocabulary are divided over these axes.
inline constexpr AxisSet kTensorAxes = {Axis::kKvReplica, Axis::kTensor};
// The tokens of a batch are divided over these axes.
inline constexpr AxisSet kBatchAxes = {Axis::kContext, Axis::kExpert, Axis::kData};

// For example "context,data".
inline std::string Names(AxisSet set) {
  std::string names;
  const auto add = [&](Axis axis) {
    if (!set.contains(axis)) return;
    if (!names.empty()) names += ',';
    names += Name(axis);
  };
  for (Axis axis : kAllAxes) add(axis);
  add(Axis::kEnds);
  return names;
}

inline std::ostream& operator<<(std::ostream& out, AxisSet set) {
  return out << '{' << Names(set) << '}';
}

}  // namespace trainyard
