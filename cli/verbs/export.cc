// trainyard export: writes a checkpoint as a Hugging Face model directory.

#include "train/hf/export.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/errors.h"
#include "cli/open_checkpoint.h"
#include "cli/verbs/verbs.h"
#include "common/bytes.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/recorded_job.h"
#include "train/config/parse.h"
#include "train/hf/pending_directory.h"

namespace trainyard::cli {
namespace {

constexpr HfDType kDTypes[] = {HfDType::kBF16, HfDType::kF16, HfDType::kF32, HfDType::kF64};

absl::StatusOr<std::optional<HfDType>> ReadDType(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const HfDType dtype : kDTypes) {
    if (name == Name(dtype)) return dtype;
  }
  return UsageError(absl::StrCat("--dtype: wanted BF16, F16, F32 or F64, found '", name, "'"));
}

// The job that made the checkpoint. Absent: nobody recorded it, or a release that knows more did.
std::optional<JobConfig> JobOf(const Checkpoint& checkpoint) {
  const auto place = ParseCheckpointPath(checkpoint.path());
  if (!place) return std::nullopt;
  const auto record = ReadRecordedJob(
      std::filesystem::path(checkpoint.path()).parent_path().parent_path(), place->first);
  if (!record.ok() || !*record) return std::nullopt;
  auto job = ParseJobConfig((*record)->job);
  return job.ok() ? std::optional(*std::move(job)) : std::nullopt;
}

// Says over which model the adapter is right: PEFT adds it to any.
void NoteBase(const JobConfig& job, Output& output) {
  if (!job.model.import_path.empty()) {
    output.Note(absl::StrCat("the adapter's base is ", job.model.import_path));
  } else if (!job.init_from.empty()) {
    output.Note(absl::StrCat("the adapter's base are the weights of ", job.init_from,
                             "; trainyard export ", job.init_from, " --to DIR writes them"));
  }
}

void Print(const Exported& exported, const ExportOptions& options, Output& output) {
  output.Line(absl::StrCat("exported  ", options.to, "  (", exported.files.size(),
                           exported.files.size() == 1 ? " file, " : " files, ",
                           Name(exported.dtype), ", ", FormatBytes(double(exported.size_bytes)),
                           ")"));
  if (exported.origin.empty()) {
    output.Note("no imported directory is known, so the tokenizer's files are not there");
  }
  if (!exported.changed_keys.empty()) {
    output.Note(absl::StrCat("keys of config.json that are not as in the imported directory: ",
                             absl::StrJoin(exported.changed_keys, ", ")));
  }
}

absl::Status RunExport(const Context& context) {
  ExportOptions options{.to = context.arguments.Text("--to")};
  if (options.to.empty()) {
    return UsageError("--to: wanted the path of the new directory, found none");
  }
  options.merge = context.arguments.Flag("--merge");
  ASSIGN_OR_RETURN(options.dtype, ReadDType(context.arguments.Text("--dtype")));
  RETURN_IF_ERROR(PendingDirectory::Check(options.to));
  // What is written is checked while it is read.
  const auto use = [](const Checkpoint&) { return absl::OkStatus(); };
  ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                   OpenCheckpoint(context.arguments.Text("CKPT"), use, context.output));
  const bool of_adapter = checkpoint.state().adapter && !options.merge;
  const std::optional<JobConfig> job = of_adapter ? JobOf(checkpoint) : std::nullopt;
  if (job) options.base = job->model.import_path;
  ASSIGN_OR_RETURN(const Exported exported, ExportHf(checkpoint, options));
  Output& output = context.output;
  if (job) NoteBase(*job, output);
  for (const std::string& path : exported.left) output.Note(AdviceOnLeft(path));
  if (output.format() == Format::kTable) {
    Print(exported, options, output);
    return absl::OkStatus();
  }
  const nlohmann::ordered_json json = {{"path", options.to},
                                       {"checkpoint", checkpoint.path()},
                                       {"files", exported.files},
                                       {"dtype", Name(exported.dtype)},
                                       {"size_bytes", exported.size_bytes},
                                       {"carried", exported.carried},
                                       {"changed_keys", exported.changed_keys}};
  output.Line(JsonText(json, output.format() == Format::kJson ? 2 : -1));
  return absl::OkStatus();
}

}  // namespace

Verb ExportVerb() {
  return {
      .name = "export",
      .summary = "writes a checkpoint as a Hugging Face model directory",
      .positionals = {{"CKPT", "a checkpoint, or a job's checkpoint.directory: its newest one"}},
      .options = {TextOption("--to", "DIR", "the new directory; nothing may be there yet"),
                  TextOption("--dtype", "DTYPE",
                             "of the tensors: BF16, F16, F32 or F64; that of the directory from "
                             "which the model was imported, or else that of the checkpoint"),
                  FlagOption("--merge", "",
                             "a job's adapter and its base as one model; without it, the adapter "
                             "alone, as PEFT loads it")},
      .offers = kFormats | kQuiet,
      .examples = {"trainyard export runs/tiny --to exported/tiny",
                   "trainyard export runs/tiny/epoch-1/step-200 --to exported/tiny --dtype BF16"},
      .run = RunExport};
}

}  // namespace trainyard::cli
