#include "train/step/snapshot.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/remove.h"
#include "train/hf/load.h"
#include "train/step/agree.h"
#include "train/step/load_nf4.h"

namespace trainyard {
namespace {

constexpr std::pair<TensorKind, FlatBuffer> kStates[] = {
    {TensorKind::kFirstMoment, FlatBuffer::kFirstMoment},
    {TensorKind::kSecondMoment, FlatBuffer::kSecondMoment},
};

// Calls f(parameter, kind, elements) for each of this rank's boxes.
template <typename F>
void ForEachBox(const Executable& executable, LoadWhat what, F&& f) {
  for (const ParameterBox& parameter : executable.program().OwnedParameters()) {
    f(parameter, TensorKind::kParameter, executable.master(parameter.flat));
    if (what != LoadWhat::kEverything) continue;
    for (const auto& [kind, buffer] : kStates) {
      // The optimizer keeps no such state of it.
      if (!executable.program().place(buffer).Find(parameter.flat)) continue;
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

SourceBox SourceOf(const ParameterBox& parameter, TensorKind kind, const Tensor& elements) {
  return {parameter.name,
          kind,
          elements.dtype,
          parameter.global_shape,
          {parameter.offset, parameter.shape},
          elements.data};
}

}  // namespace

std::vector<SourceBox> SourceBoxes(const Executable& executable) {
  const Mesh& mesh = executable.program().mesh;
  std::vector<SourceBox> boxes;
  ForEachBox(executable, LoadWhat::kEverything,
             [&](const ParameterBox& parameter, TensorKind kind, const Tensor& elements) {
               if (mesh.coordinate(parameter.copy_axes) != 0) return;
               boxes.push_back(SourceOf(parameter, kind, elements));
             });
  return boxes;
}

std::vector<SourceBox> FrozenSourceBoxes(const Executable& executable) {
  const Mesh& mesh = executable.program().mesh;
  std::vector<SourceBox> boxes;
  for (const ParameterBox& parameter : executable.program().FrozenParameters()) {
    if (mesh.coordinate(parameter.copy_axes) != 0) continue;
    boxes.push_back(SourceOf(parameter, TensorKind::kParameter, executable.frozen(parameter)));
  }
  return boxes;
}

namespace {

// How all ranks write a directory together.
struct SharedDirectory {
  std::string path;
  std::function<absl::Status()> begin;  // On rank 0, as `commit`.
  std::function<absl::Status(std::vector<StoredTensor>)> commit;
};

absl::Status WriteTogether(const SharedDirectory& shared, std::span<const SourceBox> boxes,
                           const Executable& executable, Collective& everyone, Storage& storage) {
  const bool first = everyone.rank() == 0;
  const auto write = [&]() -> absl::Status {
    RETURN_IF_ERROR(AgreeOnStatus(everyone, first ? shared.begin() : absl::OkStatus()));
    const auto written =
        WriteRank(shared.path, everyone.rank(), boxes, storage, ToHost(executable));
    RETURN_IF_ERROR(AgreeOnStatus(everyone, written.status()));
    const std::vector<std::string> texts = GatherText(everyone, TensorsToJson(*written), 0);
    const auto commit = [&]() -> absl::Status {
      std::vector<StoredTensor> all;
      for (const std::string& text : texts) {
        ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, ParseTensors(text));
        std::move(tensors.begin(), tensors.end(), std::back_inserter(all));
      }
      return shared.commit(std::move(all));
    };
    return AgreeOnStatus(everyone, first ? commit() : absl::OkStatus());
  };
  const absl::Status status = write();
  // The first error is the one to report. Files that cannot be removed now are removed by retention
  // later.
  if (first && !status.ok()) RemoveCheckpoint(shared.path, storage).IgnoreError();
  return status;
}

}  // namespace

absl::StatusOr<Manifest> SaveSnapshot(const Snapshot& snapshot, Executable& executable,
                                      Collective& everyone, Storage& storage) {
  executable.Run(Action::kJoin);
  Manifest manifest;
  const std::string& directory = snapshot.directory;
  const RunState& state = snapshot.state;
  const std::string path = CheckpointPath(directory, state.epoch, state.step);
  const SharedDirectory shared{
      .path = path,
      .begin = [&]() -> absl::Status {
        RETURN_IF_ERROR(BeginCheckpoint(directory, state.epoch, state.step, storage));
        const auto has = [](const KeptFiles* files) { return files != nullptr && !files->empty(); };
        if (has(snapshot.kept)) RETURN_IF_ERROR(WriteKept(*snapshot.kept, path, storage));
        if (!has(snapshot.tokenizer)) return absl::OkStatus();
        return WriteTokenizer(*snapshot.tokenizer, path, storage);
      },
      .commit = [&](std::vector<StoredTensor> all) -> absl::Status {
        ASSIGN_OR_RETURN(manifest, CommitCheckpoint(directory, state, std::move(all), storage));
        return absl::OkStatus();
      }};
  RETURN_IF_ERROR(WriteTogether(shared, SourceBoxes(executable), executable, everyone, storage));
  return manifest;
}

absl::StatusOr<BaseReference> SaveBase(const std::string& directory, RunState state,
                                       const Executable& executable, Collective& everyone,
                                       Storage& storage) {
  // A base is the same at every step: earlier checkpoints of the attempt may name it.
  state.step = state.data_position = 0;
  state.adapter.reset();
  state.validation.reset();
  BaseReference base{.epoch = state.epoch, .sha256 = {}};
  const SharedDirectory shared{.path = BasePath(directory, state.epoch),
                               .begin = [&] { return BeginBase(directory, state.epoch, storage); },
                               .commit = [&](std::vector<StoredTensor> all) -> absl::Status {
                                 ASSIGN_OR_RETURN(
                                     base, CommitBase(directory, state, std::move(all), storage));
                                 return absl::OkStatus();
                               }};
  RETURN_IF_ERROR(
      WriteTogether(shared, FrozenSourceBoxes(executable), executable, everyone, storage));
  base.sha256 = BroadcastText(everyone, base.sha256, 0);
  return base;
}

namespace {

// The boxes that this rank has to fill. Histories belong to a precision, not to the parameters:
// those that are not loaded begin anew.
std::vector<TargetBox> TargetBoxes(const Executable& executable, LoadWhat what,
                                   const Checkpoint* from) {
  const bool exact = what == LoadWhat::kEverything;
  std::vector<TargetBox> boxes;
  const auto add = [&](const ParameterBox& parameter, TensorKind kind, const Tensor& elements,
                       Conversion conversion) {
    if (what == LoadWhat::kBase && IsLowRank(parameter.name)) return;
    boxes.push_back({parameter.name,
                     kind,
                     elements.dtype,
                     parameter.global_shape,
                     {parameter.offset, parameter.shape},
                     elements.data,
                     exact ? Conversion::kNone : conversion});
  };
  ForEachBox(executable, what,
             [&](const ParameterBox& parameter, TensorKind kind, const Tensor& elements) {
               const bool history = parameter.state == StateRule::AmaxHistory();
               if (history && (!exact || from->Find(parameter.name, kind) == nullptr)) return;
               add(parameter, kind, elements, Conversion::kWiden);
               // The run that the job continues may have had other state.
               if (kind == TensorKind::kParameter) return;
               boxes.back().conversion =
                   elements.dtype == DType::kBF16 ? Conversion::kRound : Conversion::kWiden;
             });
  for (const ParameterBox& parameter : executable.program().FrozenParameters()) {
    add(parameter, TensorKind::kParameter, executable.frozen(parameter), Conversion::kRound);
    // Earlier releases rounded a base's parameters that are unrounded now.
    if (exact) boxes.back().conversion = Conversion::kWiden;
  }
  return boxes;
}

// Histories that the checkpoint lacks begin anew, also after a checkpoint that could not be read to
// its end.
void BeginHistories(const Checkpoint& checkpoint, Executable& executable) {
  ForEachBox(executable, LoadWhat::kEverything,
             [&](const ParameterBox& parameter, TensorKind kind, const Tensor& elements) {
               const bool history = parameter.state == StateRule::AmaxHistory();
               if (!history || checkpoint.Find(parameter.name, kind) != nullptr) return;
               const std::vector<std::byte> zeros(elements.bytes());
               executable.CopyToDevice(elements.data, zeros.data(), zeros.size());
             });
}

// An adapter was trained beside the numbers of its base. Refuses one whose base has a weight as
// numbers that the program has in NF4, as those of experts were at first.
absl::Status CheckBaseInNf4(const Checkpoint& checkpoint,
                            const std::map<std::string, Shape>& in_nf4) {
  const RunState& state = checkpoint.state();
  if (checkpoint.base() == nullptr || !state.adapter || !state.adapter->nf4) {
    return absl::OkStatus();
  }
  for (const auto& [name, shape] : in_nf4) {
    if (checkpoint.base()->Find(name, TensorKind::kParameter) == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint.path(), ": wanted an adapter that was trained beside ", name,
        " in NF4, found that its base has this weight as it is computed; `trainyard export ",
        "--merge` makes one model of the adapter and its base"));
  }
  return absl::OkStatus();
}

}  // namespace

bool BaseIsLost(const std::string& directory, const std::optional<BaseReference>& base,
                Collective& everyone) {
  int64_t lost = 0;
  if (everyone.rank() == 0 && base) {
    const absl::Status status = Checkpoint::CheckBase(directory, *base);
    lost = absl::IsNotFound(status) || absl::IsDataLoss(status);
    if (lost != 0)
      LogError("base_lost", {{"error", status.message()}, {"then", "it is written again"}});
  }
  everyone.AllReduceMax(Tensor{{&lost, DType::kI64, Shape{1}}});
  return lost != 0;
}

absl::Status LoadSnapshot(const Checkpoint& checkpoint, LoadWhat what, Executable& executable,
                          std::set<std::string>* absent) {
  const std::map<std::string, Shape> in_nf4 = ShapesInNf4(executable.program());
  RETURN_IF_ERROR(CheckBaseInNf4(checkpoint, in_nf4));
  if (what == LoadWhat::kEverything) BeginHistories(checkpoint, executable);
  const BoxCopy to_device = ToDevice(executable);
  std::vector<TargetBox> boxes = TargetBoxes(executable, what, &checkpoint);
  const auto load = [&](std::span<const TargetBox> some, const BoxCopy& copy) {
    return checkpoint.Load(some, copy, absent);
  };
  if (what == LoadWhat::kEverything) return load(boxes, to_device);
  const auto has = [&](const std::string& name) {
    return checkpoint.Find(name, TensorKind::kParameter) != nullptr;
  };
  return LoadQuantizing(std::move(boxes), in_nf4, {has, load}, to_device);
}

absl::Status LoadImported(const HfModel& model, Executable& executable) {
  const HfLoader loader(model);
  const auto load = [&](std::span<const TargetBox> some, const BoxCopy& copy) {
    return loader.Load(some, copy);
  };
  const auto has_no_parts = [](const std::string& /*name*/) { return false; };
  return LoadQuantizing(TargetBoxes(executable, LoadWhat::kBase, nullptr),
                        ShapesInNf4(executable.program()), {has_no_parts, load},
                        ToDevice(executable));
}

}  // namespace trainyard
