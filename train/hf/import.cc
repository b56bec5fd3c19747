#include "train/hf/import.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/status_macros.h"
#include "models/hf/model.h"
#include "train/checkpoint/save.h"
#include "train/hf/carried_files.h"
#include "train/hf/pending_directory.h"

namespace trainyard {
namespace {

constexpr char kJobId[] = "import";

// Reads all parameters, and so checks their values.
absl::Status CheckValues(const HfWeights& weights) {
  std::vector<char> values;
  for (const HfWeight& weight : weights.all()) {
    for (const HfParameter& parameter : weight.layout.parameters) {
      values.resize(size_t(parameter.shape.elements()) * SizeOf(weight.dtype));
      RETURN_IF_ERROR(HfWeights::Read(weight, parameter, values.data()));
    }
  }
  return absl::OkStatus();
}

// Writes all parameters, one after the other.
absl::StatusOr<std::vector<StoredTensor>> WriteParameters(const HfWeights& weights,
                                                          const std::string& checkpoint,
                                                          Storage& storage) {
  ASSIGN_OR_RETURN(RankWriter writer, RankWriter::Create(checkpoint, /*rank=*/0, storage));
  std::vector<char> values;
  for (const HfWeight& weight : weights.all()) {
    for (const HfParameter& parameter : weight.layout.parameters) {
      values.resize(size_t(parameter.shape.elements()) * SizeOf(weight.dtype));
      RETURN_IF_ERROR(HfWeights::Read(weight, parameter, values.data()));
      RETURN_IF_ERROR(writer.Append({.name = parameter.name,
                                     .dtype = weight.dtype,
                                     .global_shape = parameter.shape,
                                     .box = WholeBox(parameter.shape),
                                     .data = values.data()}));
    }
  }
  return writer.Finish();
}

}  // namespace

absl::StatusOr<Imported> ImportHf(const ImportOptions& options, Storage& storage) {
  const std::string& to = options.to;
  if (!to.empty()) RETURN_IF_ERROR(PendingDirectory::Check(to));  // Reading may take long.
  ASSIGN_OR_RETURN(const HfModel model, HfModel::Open(options.from, Roots(), options.ignored));
  ASSIGN_OR_RETURN(const KeptFiles kept, FilesToKeep(model));
  Imported imported{.model = model.config, .carried = CarriedOf(kept)};
  for (const HfWeight& weight : model.weights.all()) {
    imported.parameters += uint64_t(weight.layout.slice_elements() * weight.layout.slices());
  }
  if (to.empty()) {
    RETURN_IF_ERROR(CheckValues(model.weights));
    return imported;
  }
  ASSIGN_OR_RETURN(PendingDirectory pending, PendingDirectory::Create(to, storage));
  ASSIGN_OR_RETURN(std::vector<StoredTensor> written,
                   WriteParameters(model.weights, pending.path(), storage));
  RETURN_IF_ERROR(WriteKept(kept, pending.path(), storage));
  const RunState state{.job_id = kJobId,
                       .model = imported.model,
                       .layout = {},
                       .build = absl::StrCat(Version(), "+", Revision())};
  ASSIGN_OR_RETURN(const Manifest manifest,
                   CommitAlone(pending.path(), state, std::move(written), storage));
  imported.size_bytes = manifest.size_bytes();
  imported.left = pending.left();
  RETURN_IF_ERROR(pending.Commit());
  return imported;
}

}  // namespace trainyard
