#include "train/step/snapshot.h"

#include <utility>

#include "common/check.h"

namespace trainyard {
namespace {

constexpr std::pair<TensorKind, FlatBuffer> kKinds[] = {
    {TensorKind::kParameter, FlatBuffer::kMaster},
    {TensorKind::kFirstMoment, FlatBuffer::kFirstMoment},
    {TensorKind::kSecondMoment, FlatBuffer::kSecondMoment},
};

// Calls f(parameter, kind, its elements) for each of this rank's boxes.
template <typename F>
void ForEachBox(const Executable& executable, LoadWhat what, F&& f) {
  CHECK(executable.backend().device() == DeviceKind::kCpu) << "boxes lie in device memory";
  for (const ParameterBox& parameter : executable.Parameters()) {
    for (const auto& [kind, buffer] : kKinds) {
      if (what == LoadWhat::kParameters && kind != TensorKind::kParameter) continue;
      f(parameter, kind, executable.flat(buffer, parameter.flat));
    }
  }
}

}  // namespace

std::vector<SourceBox> SourceBoxes(const Executable& executable) {
  std::vector<SourceBox> boxes;
  ForEachBox(executable, LoadWhat::kEverything,
             [&](const ParameterBox& parameter, TensorKind kind, const Tensor& elements) {
               boxes.push_back({parameter.name,
                                kind,
                                elements.dtype,
                                parameter.global_shape,
                                {parameter.offset, parameter.shape},
                                elements.data});
             });
  return boxes;
}

absl::Status LoadSnapshot(const Checkpoint& checkpoint, LoadWhat what, Executable& executable) {
  std::vector<TargetBox> boxes;
  ForEachBox(executable, what,
             [&](const ParameterBox& parameter, TensorKind kind, const Tensor& elements) {
               boxes.push_back({parameter.name,
                                kind,
                                elements.dtype,
                                parameter.global_shape,
                                {parameter.offset, parameter.shape},
                                elements.data});
             });
  return checkpoint.Load(boxes);
}

}  // namespace trainyard
