#include "train/step/load_nf4.h"

#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/device/nf4.h"
#include "models/program/nf4.h"

namespace trainyard {
namespace {

// A part of a weight, whole.
struct Part {
  const void* data;
  DType dtype;
};

Part PartOf(const Nf4Tensor& tensor, absl::string_view name) {
  if (absl::EndsWith(name, kNf4Codes)) return {tensor.codes.data(), DType::kU8};
  if (absl::EndsWith(name, kNf4Scales)) return {tensor.scales.data(), DType::kU8};
  return {tensor.groups.data(), DType::kF32};
}

absl::Status Fill(const TargetBox& box, const Nf4Tensor& tensor, const BoxCopy& to_device) {
  const Part part = PartOf(tensor, box.name);
  CHECK(part.dtype == box.dtype) << box.name << " in " << box.dtype;
  return FillTarget(box, part.dtype, to_device, [&](char* data) {
    const size_t element = SizeOf(part.dtype);
    const char* const whole = static_cast<const char*>(part.data);
    return ForEachSharedRun(WholeBox(box.global_shape), box.box,
                            [&](int64_t from, int64_t to, int64_t count) {
                              std::memcpy(data + size_t(to) * element,
                                          whole + size_t(from) * element, size_t(count) * element);
                              return absl::OkStatus();
                            });
  });
}

}  // namespace

std::map<std::string, Shape> ShapesInNf4(const Program& program) {
  std::map<std::string, Shape> shapes;
  for (const ParameterStorage& storage : program.storages) {
    for (const ParameterSpec& spec : storage.parameters) {
      if (!absl::EndsWith(spec.name, kNf4Codes)) continue;
      const std::string weight(WeightInNf4(spec.name));
      const int last = spec.shape.rank() - 1;
      const Shape shape = {spec.shape[last - 1], spec.shape[last] * kNf4PerByte};
      if (!spec.stacked) shapes[weight] = shape;
      for (int64_t i = 0; spec.stacked && i < spec.shape[0]; ++i) {
        shapes[absl::StrReplaceAll(weight, {{"*", absl::StrCat(i)}})] = shape;
      }
    }
  }
  return shapes;
}

absl::Status LoadQuantizing(std::vector<TargetBox> boxes,
                            const std::map<std::string, Shape>& shapes, const LoadingSource& source,
                            const BoxCopy& to_device) {
  std::vector<TargetBox> plain;
  std::map<std::string, std::vector<TargetBox>> parts;  // By weight.
  for (TargetBox& box : boxes) {
    const std::string weight(WeightInNf4(box.name));
    const bool quantizes = !weight.empty() && !source.has(box.name);
    (quantizes ? parts[weight] : plain).push_back(std::move(box));
  }
  RETURN_IF_ERROR(source.load(plain, to_device));
  for (const auto& [name, own] : parts) {
    const Shape& shape = shapes.at(name);
    std::vector<float> numbers(size_t(shape.elements()));
    const TargetBox whole = {.name = name,
                             .dtype = DType::kF32,
                             .global_shape = shape,
                             .box = WholeBox(shape),
                             .data = numbers.data(),
                             .conversion = Conversion::kRound};
    RETURN_IF_ERROR(source.load({&whole, 1}, nullptr));
    const absl::StatusOr<Nf4Tensor> tensor = QuantizeNf4(numbers);
    if (!tensor.ok()) {
      return absl::Status(tensor.status().code(),
                          absl::StrCat("tensor ", name, ": ", tensor.status().message()));
    }
    for (const TargetBox& box : own) RETURN_IF_ERROR(Fill(box, *tensor, to_device));
  }
  return absl::OkStatus();
}

}  // namespace trainyard
