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
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/recorded_job.h"
#include "train/config/parse.h"
#include "train/hf/carried_files.h"
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
std::optional<JobConfig> JobOf(const std::string& checkpoint) {
  const auto record = RecordedJobOf(checkpoint);
  if (!record.ok() || !*record) return std::nullopt;
  auto job = ParseJobConfig((*record)->job);
  return job.ok() ? std::optional(*std::move(job)) : std::nullopt;
}

// Over which model an adapter is right: PEFT adds it to any.
struct Base {
  std::string directory = {}, checkpoint = {};  // One of them, or none if it is not known.
};

// Jobs may have gone on with each other's adapters, on the base of the first.
Base BaseOf(std::string checkpoint) {
  constexpr int kMostJobs = 64;
  for (int i = 0; i < kMostJobs; ++i) {
    const std::optional<JobConfig> job = JobOf(checkpoint);
    if (!job) {  // An adapter that was imported has the name that PEFT's directory had.
      const auto origin = FindOrigin(checkpoint);
      if (origin.ok() && *origin) return {.directory = (*origin)->base};
      break;
    }
    if (!job->model.import_path.empty()) return {.directory = job->model.import_path};
    const std::filesystem::path run = std::filesystem::path(checkpoint).parent_path().parent_path();
    const auto taken = ReadInitialisedFrom(run, job->init_from);
    if (!taken.ok() || !*taken) break;
    checkpoint = (*taken)->path;
    const auto opened = Checkpoint::Open(checkpoint);
    if (!opened.ok()) break;
    if (!opened->state().adapter) return {.checkpoint = checkpoint};
  }
  return {};
}

void NoteBase(const Base& base, Output& output) {
  if (!base.directory.empty()) {
    output.Note(absl::StrCat("the adapter's base is ", base.directory));
  } else if (!base.checkpoint.empty()) {
    output.Note(absl::StrCat("the adapter's base is ", base.checkpoint, "; trainyard export ",
                             base.checkpoint, " --to DIR writes it"));
  } else {
    output.Note("the adapter's base is not known: PEFT would add the adapter to any model");
  }
}

void Print(const Exported& exported, const ExportOptions& options, Output& output) {
  output.Line(absl::StrCat("exported  ", options.to, "  (", exported.files.size(),
                           exported.files.size() == 1 ? " file, " : " files, ",
                           Name(exported.dtype), ", ", FormatBytes(double(exported.size_bytes)),
                           ")"));
  if (exported.carried.empty()) {
    output.Note(
        "no tokenizer is known: the model was not imported with one, and no spec named one");
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
  const Base base = of_adapter ? BaseOf(checkpoint.path()) : Base();
  options.base = base.directory;
  ASSIGN_OR_RETURN(const Exported exported, ExportHf(checkpoint, options));
  Output& output = context.output;
  if (of_adapter) NoteBase(base, output);
  if (exported.experts_in_nf4) {
    output.Note(
        "the adapter was trained beside experts in NF4, which bitsandbytes leaves as they are in "
        "transformers 5: the adapter finds other numbers there; --merge has those of the training");
  }
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
      .positionals = {{"CKPT",
                       "a checkpoint, or a job's checkpoint.directory: its newest one; DIR/best: "
                       "the best one"}},
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
