#include "train/hf/import_adapter.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "models/hf/model.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/save.h"
#include "train/checkpoint/target_box.h"
#include "train/hf/carried_files.h"
#include "train/hf/copy_parameters.h"
#include "train/hf/peft_directory.h"
#include "train/hf/pending_directory.h"
#include "train/hf/row_norm.h"

namespace trainyard {
namespace {

constexpr int64_t kEpoch = 1, kStep = 0;
constexpr int64_t kNormedElements = 1 << 23;  // Of a weight whose norms are taken.

std::vector<double> ToNumbers(std::vector<char>& values, DType dtype) {
  std::vector<double> numbers(values.size() / SizeOf(dtype));
  ConvertNumbers({values.data(), dtype}, {numbers.data(), DType::kF64}, int64_t(numbers.size()));
  return numbers;
}

class AdapterImport {
 public:
  AdapterImport(const HfModel& base, const PeftDirectory& adapter)
      : base_(base), adapter_(adapter) {
    for (const HfWeight& weight : base.weights.all()) {
      for (const HfParameter& parameter : weight.layout.parameters) {
        places_[parameter.name] = {&weight, &parameter};
      }
    }
  }

  // These check all values.
  absl::Status CheckBase() const {
    return CopyParameters(base_.weights, adapter_.trained(), nullptr);
  }
  absl::Status CheckAdapter() const { return CopyAdapter(nullptr); }

  // Writes the run into the directory, which must be there. Returns the bytes of all tensors.
  absl::StatusOr<uint64_t> Write(const std::string& directory, const KeptFiles& kept,
                                 Storage& storage) const {
    RunState state = ImportedState(base_);
    state.epoch = kEpoch;
    RETURN_IF_ERROR(BeginEpoch(directory, kEpoch, storage));
    RETURN_IF_ERROR(WriteLineage(directory, kEpoch, std::nullopt, storage));
    RETURN_IF_ERROR(BeginBase(directory, kEpoch, storage));
    ASSIGN_OR_RETURN(RankWriter of_base,
                     RankWriter::Create(BasePath(directory, kEpoch), /*rank=*/0, storage));
    RETURN_IF_ERROR(CopyParameters(base_.weights, adapter_.trained(), &of_base));
    ASSIGN_OR_RETURN(std::vector<StoredTensor> written, of_base.Finish());
    uint64_t bytes = BytesOf(written);
    ASSIGN_OR_RETURN(state.base, CommitBase(directory, state, std::move(written), storage));
    state.adapter = adapter_.numbers();
    const std::string path = CheckpointPath(directory, kEpoch, kStep);
    RETURN_IF_ERROR(BeginCheckpoint(directory, kEpoch, kStep, storage));
    RETURN_IF_ERROR(WriteKept(kept, path, storage));
    ASSIGN_OR_RETURN(RankWriter of_adapter, RankWriter::Create(path, /*rank=*/0, storage));
    RETURN_IF_ERROR(CopyAdapter(&of_adapter));
    ASSIGN_OR_RETURN(written, of_adapter.Finish());
    bytes += BytesOf(written);
    RETURN_IF_ERROR(CommitCheckpoint(directory, state, std::move(written), storage).status());
    return bytes;
  }

 private:
  struct Place {
    const HfWeight* weight = nullptr;
    const HfParameter* parameter = nullptr;
  };

  static uint64_t BytesOf(const std::vector<StoredTensor>& tensors) {
    uint64_t bytes = 0;
    for (const StoredTensor& tensor : tensors) {
      bytes += uint64_t(tensor.shape.elements()) * SizeOf(tensor.dtype);
    }
    return bytes;
  }

  absl::Status CopyAdapter(RankWriter* writer) const {
    for (const PeftWeight& weight : adapter_.weights()) {
      const auto use = [&](const HfParameter& parameter,
                           std::vector<char>& values) -> absl::Status {
        DType dtype = weight.dtype;
        if (absl::EndsWith(parameter.name, kMagnitudeOffset)) {
          RETURN_IF_ERROR(SubtractNorms(parameter, dtype, values));
        }
        return writer == nullptr ? absl::OkStatus()
                                 : AppendWhole(parameter, dtype, values, *writer);
      };
      RETURN_IF_ERROR(adapter_.ForEachParameter(weight, use));
    }
    return absl::OkStatus();
  }

  // PEFT has the magnitudes, and checkpoints what training has added to the norms of the base's
  // rows. These differences need the digits of f32 also where the magnitudes are in BF16.
  absl::Status SubtractNorms(const HfParameter& offset, DType& dtype,
                             std::vector<char>& values) const {
    std::vector<double> numbers = ToNumbers(values, dtype);
    const auto found = places_.find(absl::StrCat(AdaptedModuleOf(offset.name), ".weight"));
    CHECK(found != places_.end()) << offset.name;
    const auto& [weight, parameter] = found->second;
    const int64_t rows = parameter->shape[0], columns = parameter->shape.elements() / rows;
    // A tensor in another form is read as a whole for any of its rows.
    const int64_t chunk =
        parameter->transposed ? rows : std::clamp<int64_t>(kNormedElements / columns, 1, rows);
    std::vector<char> stored;
    for (int64_t row = 0; row < rows; row += chunk) {
      const int64_t count = std::min(chunk, rows - row);
      stored.resize(size_t(count * columns) * SizeOf(weight->dtype));
      RETURN_IF_ERROR(HfWeights::ReadRows(*weight, *parameter, row, count, stored.data()));
      const std::vector<double> w = ToNumbers(stored, weight->dtype);
      for (int64_t i = 0; i < count; ++i) {
        numbers[size_t(row + i)] -= RowNorm({w.data() + i * columns, size_t(columns)});
      }
    }
    if (dtype == DType::kBF16) dtype = DType::kF32;
    values.resize(numbers.size() * SizeOf(dtype));
    ConvertNumbers({numbers.data(), DType::kF64}, {values.data(), dtype}, int64_t(numbers.size()));
    return absl::OkStatus();
  }

  const HfModel& base_;
  const PeftDirectory& adapter_;
  std::map<std::string, Place> places_;  // By parameter.
};

// The directory of the base: the one that the user has named, or the one that PEFT has.
absl::StatusOr<std::string> DirectoryOfBase(const std::string& from, const std::string& named,
                                            const std::string& of_config) {
  if (!named.empty()) return named;
  if (!of_config.empty() && Exists(absl::StrCat(of_config, "/", kHfConfigName))) return of_config;
  return absl::InvalidArgumentError(absl::StrCat(
      "--base: wanted the directory of the model that ", from, " was trained beside, found none",
      of_config.empty() ? ""
                        : absl::StrCat("; base_model_name_or_path of its ", kAdapterConfigName,
                                       " is ", of_config, ", which is no directory here")));
}

}  // namespace

absl::StatusOr<ImportedAdapter> ImportAdapter(const ImportOptions& options, const std::string& base,
                                              Storage& storage) {
  const std::string& to = options.to;
  if (!to.empty()) RETURN_IF_ERROR(PendingDirectory::Check(to));  // Reading may take long.
  ASSIGN_OR_RETURN(PeftConfig config, ReadPeftConfig(options.from));
  ImportedAdapter result;
  ASSIGN_OR_RETURN(result.base, DirectoryOfBase(options.from, base, config.base));
  ASSIGN_OR_RETURN(const HfModel model, HfModel::Open(result.base, Roots(), options.ignored));
  ASSIGN_OR_RETURN(const PeftDirectory adapter,
                   PeftDirectory::Open(options.from, std::move(config), model));
  ASSIGN_OR_RETURN(KeptFiles kept, FilesToKeep(model));
  result.base = model.directory.path();
  result.config = adapter.config();
  result.numbers = adapter.numbers();
  const std::string& called = result.config.base;
  RETURN_IF_ERROR(KeepOfAdapter(adapter.path(), called.empty() ? result.base : called, kept));
  result.trained = adapter.trained();
  Imported& imported = result.imported;
  imported.model = model.config;
  imported.carried = CarriedOf(kept);
  for (const HfWeight& weight : model.weights.all()) {
    for (const HfParameter& parameter : weight.layout.parameters) {
      if (result.trained.contains(parameter.name)) continue;
      imported.parameters += uint64_t(parameter.shape.elements());
    }
  }
  for (const PeftWeight& weight : adapter.weights()) {
    result.trained_parameters += uint64_t(adapter.ElementsOf(weight));
  }
  imported.parameters += result.trained_parameters;
  const AdapterImport import(model, adapter);
  RETURN_IF_ERROR(import.CheckAdapter());  // Before the base, which may be large, is copied.
  if (to.empty()) {
    RETURN_IF_ERROR(import.CheckBase());
    return result;
  }
  ASSIGN_OR_RETURN(PendingDirectory pending, PendingDirectory::Create(to, storage));
  ASSIGN_OR_RETURN(imported.size_bytes, import.Write(pending.path(), kept, storage));
  imported.left = pending.left();
  RETURN_IF_ERROR(pending.Commit());
  return result;
}

}  // namespace trainyard
