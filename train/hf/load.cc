#include "train/hf/load.h"

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace trainyard {

HfLoader::HfLoader(const HfModel& model) : model_(model) {
  for (const HfWeight& weight : model.weights.all()) {
    for (const HfParameter& parameter : weight.layout.parameters) {
      places_[parameter.name] = {&weight, &parameter};
    }
  }
}

absl::Status HfLoader::ReadBox(const Place& place, const Box& box, char* data) {
  // All columns of the box's rows.
  const Shape& shape = place.parameter->shape;
  const int64_t first = box.offset[0], count = box.extent[0];
  Box rows = WholeBox(shape);
  rows.offset = rows.offset.With(0, first);
  rows.extent = rows.extent.With(0, count);
  if (rows == box) return HfWeights::ReadRows(*place.weight, *place.parameter, first, count, data);
  const size_t element = SizeOf(place.weight->dtype);
  std::vector<char> values(size_t(rows.elements()) * element);
  RETURN_IF_ERROR(
      HfWeights::ReadRows(*place.weight, *place.parameter, first, count, values.data()));
  return ForEachSharedRun(rows, box, [&](int64_t from, int64_t to, int64_t elements) {
    std::memcpy(data + size_t(to) * element, values.data() + size_t(from) * element,
                size_t(elements) * element);
    return absl::OkStatus();
  });
}

absl::Status HfLoader::Load(std::span<const TargetBox> boxes, const BoxCopy& to_device) const {
  for (const TargetBox& target : boxes) {
    CHECK(target.kind == TensorKind::kParameter) << target.name;
    const auto place = places_.find(target.name);
    std::optional<SourceForm> form;
    if (place != places_.end()) {
      form = {.dtype = place->second.weight->dtype, .shape = place->second.parameter->shape};
    }
    const absl::Status status = CheckTarget(target, form, "the directory");
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat(model_.directory.path(), ": ", status.message()));
  }
  for (const TargetBox& target : boxes) {
    const Place& place = places_.at(target.name);
    RETURN_IF_ERROR(FillTarget(target, place.weight->dtype, to_device,
                               [&](char* data) { return ReadBox(place, target.box, data); }));
  }
  return absl::OkStatus();
}

}  // namespace trainyard
