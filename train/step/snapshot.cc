#include "train/step/snapshot.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/remove.h"
#include "train/step/agree.h"

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
  for (const ParameterBox& parameter : executable.program().OwnedParameters()) {
    for (const auto& [kind, buffer] : kKinds) {
      if (what == LoadWhat::kParameters && kind != TensorKind::kParameter) continue;
      f(parameter, kind, executable.flat(buffer, parameter.flat));
    }
  }
}

bool OnHost(const Executable& executable) {
  return executable.backend().device() == DeviceKind::kCpu;
}

BoxCopy ToHost(const Executable& executable) {
  if (OnHost(executable)) return nullptr;
  return [&executable](void* to, const void* from, size_t bytes) {
    executable.CopyToHost(to, from, bytes);
  };
}

BoxCopy ToDevice(Executable& executable) {
  if (OnHost(executable)) return nullptr;
  return [&executable](void* to, const void* from, size_t bytes) {
    executable.CopyToDevice(to, from, bytes);
  };
}

}  // namespace

std::vector<SourceBox> SourceBoxes(const Executable& executable) {
  const Mesh& mesh = executable.program().mesh;
  std::vector<SourceBox> boxes;
  ForEachBox(executable, LoadWhat::kEverything,
             [&](const ParameterBox& parameter, TensorKind kind, const Tensor& elements) {
               if (mesh.coordinate(parameter.copy_axes) != 0) return;
               boxes.push_back({parameter.name,
                                kind,
                                elements.dtype,
                                parameter.global_shape,
                                {parameter.offset, parameter.shape},
                                elements.data});
             });
  return boxes;
}

absl::StatusOr<Manifest> SaveSnapshot(const std::string& directory, const RunState& state,
                                      const Executable& executable, Collective& everyone,
                                      Storage& storage) {
  const bool first = everyone.rank() == 0;
  const std::string path = CheckpointPath(directory, state.epoch, state.step);
  const auto save = [&]() -> absl::StatusOr<Manifest> {
    absl::Status begun;
    if (first) begun = BeginCheckpoint(directory, state.epoch, state.step, storage);
    RETURN_IF_ERROR(AgreeOnStatus(everyone, begun));
    const auto written =
        WriteRank(path, everyone.rank(), SourceBoxes(executable), storage, ToHost(executable));
    RETURN_IF_ERROR(AgreeOnStatus(everyone, written.status()));
    absl::StatusOr<Manifest> manifest = Manifest();
    const std::vector<std::string> texts = GatherText(everyone, TensorsToJson(*written), 0);
    if (first) {
      manifest = [&]() -> absl::StatusOr<Manifest> {
        std::vector<StoredTensor> all;
        for (const std::string& text : texts) {
          ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, ParseTensors(text));
          std::move(tensors.begin(), tensors.end(), std::back_inserter(all));
        }
        return CommitCheckpoint(directory, state, std::move(all), storage);
      }();
    }
    RETURN_IF_ERROR(AgreeOnStatus(everyone, manifest.status()));
    return manifest;
  };
  absl::StatusOr<Manifest> manifest = save();
  // The first error is the one to report; what cannot be removed now, retention removes later.
  if (first && !manifest.ok()) RemoveCheckpoint(path, storage).IgnoreError();
  return manifest;
}

absl::Status LoadSnapshot(const Checkpoint& checkpoint, LoadWhat what, Executable& executable,
                          std::set<std::string>* absent) {
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
  return checkpoint.Load(boxes, ToDevice(executable), absent);
}

}  // namespace trainyard
