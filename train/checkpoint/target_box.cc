#include "train/checkpoint/target_box.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/device/dtype.h"

namespace trainyard {
namespace {

// Whether every number of dtype `narrow` is also one of dtype `wide`.
bool Holds(DType wide, DType narrow) {
  return SizeOf(wide) > SizeOf(narrow) && wide != DType::kI32 && wide != DType::kI64;
}

bool Converts(const TargetBox& target, DType stored) {
  // Bytes are no numbers.
  if (target.dtype == DType::kU8 || stored == DType::kU8) return target.dtype == stored;
  switch (target.conversion) {
    case Conversion::kNone:
      break;
    case Conversion::kWiden:
      if (Holds(target.dtype, stored)) return true;
      break;
    case Conversion::kRound:
      return true;
  }
  return target.dtype == stored;
}

}  // namespace

void ConvertNumbers(ConstNumbers from, Numbers to, int64_t elements) {
  DispatchFloat(from.dtype, [&](auto source) {
    DispatchFloat(to.dtype, [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      const From* const x = static_cast<const From*>(from.data);
      To* const y = static_cast<To*>(to.data);
      for (int64_t i = 0; i < elements; ++i) y[i] = To(Accumulate<To>(Accumulate<From>(x[i])));
    });
  });
}

absl::Status CheckTarget(const TargetBox& target, const std::optional<SourceForm>& found,
                         absl::string_view source) {
  const std::string what = absl::StrCat("tensor ", target.name, " (", Name(target.kind), ")");
  const std::string wanted = absl::StrCat(Name(target.dtype), " ", ToString(target.global_shape));
  if (!found) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": wanted ", wanted, ", ", source, " has none"));
  }
  if (!Converts(target, found->dtype) || !(found->shape == target.global_shape)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": wanted ", wanted, ", ", source, " has ",
                                                   Name(found->dtype), " ",
                                                   ToString(found->shape)));
  }
  const std::optional<Box> inside = Intersection(target.box, WholeBox(target.global_shape));
  CHECK(inside && *inside == target.box) << what << ": box " << ToString(target.box);
  return absl::OkStatus();
}

absl::Status FillTarget(const TargetBox& target, DType source, const BoxCopy& to_device,
                        absl::FunctionRef<absl::Status(char*)> read) {
  const int64_t elements = target.box.elements();
  const size_t bytes = size_t(elements) * SizeOf(target.dtype);
  const bool converts = source != target.dtype;
  std::vector<char> staged(to_device ? bytes : 0);
  std::vector<char> stored(converts ? size_t(elements) * SizeOf(source) : 0);
  char* const on_host = to_device ? staged.data() : static_cast<char*>(target.data);
  RETURN_IF_ERROR(read(converts ? stored.data() : on_host));
  if (converts) ConvertNumbers({stored.data(), source}, {on_host, target.dtype}, elements);
  if (to_device) to_device(target.data, on_host, bytes);
  return absl::OkStatus();
}

}  // namespace trainyard
