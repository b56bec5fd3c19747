// Weights in NF4 (kernels/device/nf4.h). A program has such a weight as three frozen parameters, of
// whole bytes, which are placed, divided, gathered, saved and loaded as any others. A
// product makes numbers of them, part by part (kernels/products/nf4_parts.h).
//
// The scales' mean and groups are those of the whole tensor, so a tensor is quantised as a whole,
// on the host, when it is loaded. Each rank then keeps its part of the codes and scales, and all
// groups: these are 4 bytes for 16,384 numbers.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/program/parameter.h"

namespace trainyard {

// What follows the weight's name in the names of its parts.
inline constexpr char kNf4Codes[] = ".nf4_codes";
inline constexpr char kNf4Scales[] = ".nf4_scales";
inline constexpr char kNf4Groups[] = ".nf4_groups";

// The parts of a weight [out, in], whose rows are whole blocks. Those of a stacked weight [n, out,
// in] are stacked, too: each of the n tensors has its own groups and mean.
struct Nf4Parts {
  ParameterSpec codes;   // u8 [out, in / 2], divided as the weight is.
  ParameterSpec scales;  // u8 [out, in / 64], likewise.
  ParameterSpec groups;  // f32 [groups + 1]: the groups, and the mean. On every rank; those of a
                         // stacked weight where their tensor is.
};
Nf4Parts PartsInNf4(const ParameterSpec& weight);

// How many groups a tensor of so many numbers has. The numbers are whole blocks.
int64_t Nf4GroupsOf(int64_t numbers);

// Returns the name of the weight of which the parameter is a part, or "" if it is none.
absl::string_view WeightInNf4(absl::string_view parameter);

// A whole tensor.
struct Nf4Tensor {
  std::vector<uint8_t> codes;   // Two a byte.
  std::vector<uint8_t> scales;  // By block.
  std::vector<float> groups;    // By group; then the mean.
};

// Quantises numbers, which must be whole blocks, as bitsandbytes does: to the nearest value and
// scale, the lower one of two that are as near. The mean is the exact mean of the scales, rounded;
// PyTorch adds in f32, in an order that depends on the device, so that its last bit may be another.
// INVALID_ARGUMENT: names the first number that is not finite.
absl::StatusOr<Nf4Tensor> QuantizeNf4(std::span<const float> numbers);

// Rows of a tensor, to be made numbers of on the host.
struct Nf4Rows {
  std::span<const uint8_t> codes;
  std::span<const uint8_t> scales;
  std::span<const float> groups;  // Of the whole tensor, and the mean.
  int64_t first_block;            // Of the tensor's blocks, the rows' first one.
};
// Writes the numbers, exactly as kernels/products/dequantize_nf4.h has them in f32.
void DequantizeNf4(const Nf4Rows& rows, std::span<float> numbers);

}  // namespace trainyard
