// The axes along which ranks divide the work, and sets of them.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

namespace trainyard {

// In the order of a rank number's digits: tensor ranks are neighbours, pipeline stages far apart.
enum class Axis : uint8_t { kTensor, kContext, kData, kPipeline };
inline constexpr std::array<Axis, 4> kAllAxes = {Axis::kTensor, Axis::kContext, Axis::kData,
                                                 Axis::kPipeline};

constexpr const char* Name(Axis axis) {
  switch (axis) {
    case Axis::kTensor:
      return "tensor";
    case Axis::kContext:
      return "context";
    case Axis::kData:
      return "data";
    case Axis::kPipeline:
      return "pipeline";
  }
  return "?";
}

class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) bits_ = uint8_t(bits_ | Bit(axis));
  }
  constexpr bool contains(Axis axis) const { return (bits_ & Bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet operator|(AxisSet o) const { return AxisSet(uint8_t(bits_ | o.bits_)); }
  constexpr AxisSet operator&(AxisSet o) const { return AxisSet(uint8_t(bits_ & o.bits_)); }
  constexpr AxisSet operator-(AxisSet o) const { return AxisSet(uint8_t(bits_ & ~o.bits_)); }
  constexpr auto operator<=>(const AxisSet&) const = default;

 private:
  constexpr explicit AxisSet(uint8_t bits) : bits_(bits) {}
  static constexpr uint8_t Bit(Axis axis) { return uint8_t(1u << uint8_t(axis)); }
  uint8_t bits_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, AxisSet set) {
  out << '{';
  const char* separator = "";
  for (Axis axis : kAllAxes) {
    if (!set.contains(axis)) continue;
    out << separator << Name(axis);
    separator = ",";
  }
  return out << '}';
}

}  // namespace trainyard
