// Boxes of tensors in a rank's memory that are filled from a checkpoint or from another source.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "train/checkpoint/manifest.h"

namespace trainyard {

// How a tensor's numbers may be converted if the checkpoint has another dtype.
enum class Conversion : uint8_t {
  kNone,
  kWiden,  // To a dtype that holds each number exactly.
  kRound,  // To any dtype, rounded to nearest even (kernels/elementwise/cast.h).
};

struct ConstNumbers {
  const void* data;
  DType dtype;
};
struct Numbers {
  void* data;
  DType dtype;
};
// Rounds to nearest even (kernels/elementwise/cast.h).
void ConvertNumbers(ConstNumbers from, Numbers to, int64_t elements);

// A box of a tensor in this rank's memory, rows contiguous, to be filled. A view.
struct TargetBox {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  DType dtype = DType::kF32;
  Shape global_shape;
  Box box;
  void* data = nullptr;
  Conversion conversion = Conversion::kNone;
};

// What a source has of a tensor.
struct SourceForm {
  DType dtype = DType::kF32;
  Shape shape;  // Global.
};

// INVALID_ARGUMENT: names the tensor, if the source ("the checkpoint") has none (nullopt), or has
// it in another shape, or in a dtype that must not be converted to the box's.
absl::Status CheckTarget(const TargetBox& target, const std::optional<SourceForm>& found,
                         absl::string_view source);

// Fills the box: `read` writes its elements, in the source's dtype, to the memory it is given.
// `to_device` is as in Checkpoint::Load.
absl::Status FillTarget(const TargetBox& target, DType source, const BoxCopy& to_device,
                        absl::FunctionRef<absl::Status(char*)> read);

}  // namespace trainyard
