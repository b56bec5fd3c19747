#include "train/step/job_data.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/recorded_job.h"
#include "train/config/declared_values.h"
#include "train/config/parse.h"
#include "train/data/source.h"
#include "train/hf/carried_files.h"

namespace trainyard {
namespace {

// The field that names the files: that of the path if there is only one.
std::string FieldOf(const JobConfig& job) {
  std::vector<SpecPath> paths = PathsOf(job);
  std::erase_if(paths, [](const SpecPath& path) { return !absl::StartsWith(path.field, "data."); });
  return paths.size() == 1 ? paths[0].field : SectionOf(job.data);
}

// Training and validation data are parts of the same files.
absl::StatusOr<std::vector<InputFingerprint>> FingerprintsOfData(const DataConfig& data,
                                                                 const Roots& roots) {
  std::vector<InputFingerprint> files;
  for (const NamedFiles& named : FilesOf(data)) {
    for (const char* const end : named.files) {
      ASSIGN_OR_RETURN(files.emplace_back(),
                       TakeFingerprint(named.field, end, named.path + end, roots));
    }
  }
  return files;
}

// Takes the data's tokenizer from the job's checkpoints where this host lacks it. A later check
// compares it with that of earlier attempts.
DataConfig WithKeptTokenizer(const JobConfig& job, const Roots& roots) {
  DataConfig data = job.data;
  std::string* const tokenizer = TokenizerIn(data);
  if (tokenizer != nullptr) *tokenizer = TokenizerOrKept(job, *tokenizer, roots);
  return data;
}

absl::StatusOr<JobData> Open(const JobConfig& job, std::vector<InputSpec> inputs,
                             const Roots& roots, OpenLineEncoding open_lines) {
  JobData data;
  data.field = FieldOf(job);
  ASSIGN_OR_RETURN(data.splits, OpenData({.source = WithKeptTokenizer(job, roots),
                                          .inputs = std::move(inputs),
                                          .sequence = job.batch.sequence,
                                          .seed = job.seed,
                                          .pairs = job.preference.has_value(),
                                          .roots = roots,
                                          .open_lines = std::move(open_lines)}));
  ASSIGN_OR_RETURN(data.files, FingerprintsOfData(job.data, roots));
  if (!data.splits.tokenizer.empty()) {
    std::string field = FieldOfTokenizer(job.data);
    if (field.empty()) field = absl::StrCat(SectionOf(job.data), ".tokenizer");
    ASSIGN_OR_RETURN(data.files.emplace_back(),
                     TakeFingerprint(field, "", data.splits.tokenizer, roots));
    // The format counts, too, and all of the tokenizer's bytes.
    data.files.back().sha256 = data.splits.encoding;
  }
  return data;
}

// The tokenizer of which the checkpoint keeps a copy, as the job that wrote it named the tokenizer:
// that of the data, or else of the prompts. "": nobody knows.
std::string NamedAtSave(const std::string& checkpoint) {
  const auto record = RecordedJobOf(checkpoint);
  if (!record.ok() || !*record) return "";
  absl::StatusOr<JobConfig> job = ParseJobConfig((*record)->job);
  if (!job.ok()) return "";
  if (const std::string* const of_data = TokenizerIn(job->data)) return *of_data;
  const bool prompts = job->validation && job->validation->generate;
  return prompts ? job->validation->generate->tokenizer : "";
}

}  // namespace

std::string TokenizerOrKept(const JobConfig& job, const std::string& tokenizer,
                            const Roots& roots) {
  if (!job.checkpoint || tokenizer.empty()) return tokenizer;
  const bool gone = absl::IsNotFound(roots.FindDirectory(tokenizer).status()) &&
                    absl::IsNotFound(InputFile::Open(tokenizer, roots).status());
  if (!gone) return tokenizer;
  const auto directory = roots.FindDirectory(job.checkpoint->directory);
  if (!directory.ok()) return tokenizer;
  const bool imported = tokenizer == job.model.import_path;
  const auto checkpoints = LoadableCheckpoints(*directory);
  for (const ListedCheckpoint& listed : checkpoints.value_or(std::vector<ListedCheckpoint>())) {
    const std::string kept = imported ? KeptPath(listed.path) : KeptVocabulary(listed.path);
    // A path that is wrong is no reason to take another tokenizer.
    if (!Exists(kept) || (!imported && NamedAtSave(listed.path) != tokenizer)) continue;
    LogWarning("tokenizer_taken_from_checkpoint",
               {{"because", absl::StrCat(tokenizer, " is gone")}, {"path", kept}});
    return kept;
  }
  return tokenizer;
}

std::string NewestKeptTokenizer(const JobConfig& job, const Roots& roots) {
  if (!job.checkpoint) return "";
  const auto directory = roots.FindDirectory(job.checkpoint->directory);
  if (!directory.ok()) return "";
  const auto checkpoints = LoadableCheckpoints(*directory);
  if (!checkpoints.ok() || checkpoints->empty()) return "";
  const std::string kept = KeptVocabulary(checkpoints->front().path);
  return Exists(kept) ? kept : "";
}

absl::StatusOr<JobData> OpenJobData(const JobConfig& job, std::vector<InputSpec> inputs,
                                    const Roots& roots, OpenLineEncoding open_lines) {
  absl::StatusOr<JobData> data = Open(job, std::move(inputs), roots, std::move(open_lines));
  if (data.ok()) return data;
  return absl::Status(data.status().code(),
                      absl::StrCat(FieldOf(job), ": ", data.status().message()));
}

int64_t ValidationBatches(const JobConfig& job, const DataSplits& splits) {
  if (job.validation->batches > 0) return job.validation->batches;
  CHECK(splits.held_out > 0) << "data without an end needs validation.batches";
  return (splits.held_out + job.batch.global - 1) / job.batch.global;
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
