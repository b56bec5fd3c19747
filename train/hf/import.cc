#include "train/hf/import.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/status_macros.h"
#include "models/hf/config.h"
#include "models/hf/weights.h"
#include "train/checkpoint/save.h"
#include "train/hf/carried_files.h"
#include "train/hf/pending_directory.h"

namespace trainyard {
namespace {

constexpr char kJobId[] = "import";

absl::StatusOr<ModelConfig> ReadConfig(const ModelDirectory& directory) {
  absl::StatusOr<ModelConfig> config = ConfigFromHf(directory.config());
  if (config.ok()) return config;
  return absl::Status(config.status().code(), absl::StrCat(directory.path(), "/", kHfConfigName,
                                                           ":\n", config.status().message()));
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

absl::StatusOr<Imported> ImportHf(const std::string& from, const std::string& to,
                                  Storage& storage) {
  ASSIGN_OR_RETURN(const ModelDirectory directory, ModelDirectory::Open(from));
  Imported imported;
  ASSIGN_OR_RETURN(imported.model, ReadConfig(directory));
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(imported.model));
  ASSIGN_OR_RETURN(const HfWeights weights, HfWeights::Find(directory, imported.model, *table));
  std::map<std::string, HfDType> dtypes;
  for (const HfWeight& weight : weights.all()) {
    dtypes[weight.layout.tensor] = weight.stored;
    imported.parameters += uint64_t(weight.layout.slice_elements() * weight.layout.slices());
  }
  ASSIGN_OR_RETURN(PendingDirectory pending, PendingDirectory::Create(to, storage));
  ASSIGN_OR_RETURN(std::vector<StoredTensor> written,
                   WriteParameters(weights, pending.path(), storage));
  ASSIGN_OR_RETURN(imported.carried,
                   KeepOrigin(directory, MostAndOthers(dtypes), pending.path(), storage));
  const RunState state{.job_id = kJobId,
                       .model = imported.model,
                       .layout = {},
                       .build = absl::StrCat(Version(), "+", Revision())};
  ASSIGN_OR_RETURN(const Manifest manifest,
                   CommitAlone(pending.path(), state, std::move(written), storage));
  imported.size_bytes = manifest.size_bytes();
  RETURN_IF_ERROR(pending.Commit());
  return imported;
}

}  // namespace trainyard
