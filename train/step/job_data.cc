#include "train/step/job_data.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "train/data/indexed_format.h"

namespace trainyard {
namespace {

// The field with the path of the data. Synthetic data have no path.
const char* PathField(const DataConfig& data) {
  if (std::holds_alternative<ArraysData>(data)) return "data.arrays";
  if (std::holds_alternative<BlendData>(data)) return "data.blend";
  return std::holds_alternative<IndexedData>(data) ? "data.indexed.prefix" : "data.text.path";
}

// Training and validation data are parts of the same files.
absl::StatusOr<std::vector<InputFingerprint>> FingerprintsOfData(const JobConfig& job,
                                                                 const Roots& roots) {
  std::vector<InputFingerprint> files;
  for (const auto& [field, path] : PathsOf(job)) {
    if (!absl::StartsWith(field, "data.")) continue;
    std::vector<std::string> names = {""};
    if (absl::EndsWith(field, ".prefix")) names = {kIndexSuffix, kTokensSuffix};
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(files.emplace_back(), TakeFingerprint(field, name, path + name, roots));
    }
  }
  return files;
}

absl::StatusOr<JobData> Open(const JobConfig& job, std::vector<InputSpec> inputs,
                             const Roots& roots) {
  JobData data;
  data.field = PathField(job.data);
  ASSIGN_OR_RETURN(data.splits, OpenData({.source = job.data,
                                          .inputs = std::move(inputs),
                                          .sequence = job.batch.sequence,
                                          .seed = job.seed,
                                          .roots = roots}));
  ASSIGN_OR_RETURN(data.files, FingerprintsOfData(job, roots));
  return data;
}

}  // namespace

absl::StatusOr<JobData> OpenJobData(const JobConfig& job, std::vector<InputSpec> inputs,
                                    const Roots& roots) {
  absl::StatusOr<JobData> data = Open(job, std::move(inputs), roots);
  if (data.ok()) return data;
  return absl::Status(data.status().code(),
                      absl::StrCat(PathField(job.data), ": ", data.status().message()));
}

absl::StatusOr<std::vector<InputFingerprint>> FingerprintsOfImport(const ModelDirectory& directory,
                                                                   const Roots& roots) {
  std::vector<InputFingerprint> files;
  for (const std::string& file : directory.FileNames()) {
    const std::string name = absl::StrCat("/", file);
    ASSIGN_OR_RETURN(files.emplace_back(),
                     TakeFingerprint("model.import", name, directory.path() + name, roots));
  }
  return files;
}

}  // namespace trainyard
