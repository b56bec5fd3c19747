#include "train/start/start_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/config/adapter.h"
#include "train/config/continued_run.h"
#include "train/config/resolved_job.h"
#include "train/data/source.h"
#include "train/data/token_check.h"
#include "train/start/continued.h"
#include "train/start/load_import.h"
#include "train/step/agree.h"

namespace trainyard {
namespace {

constexpr size_t kMaxRefused = 16;
constexpr size_t kMaxNamed = 8;

void SayWhatWasTaken(const InitialParameters& loaded) {
  LogInfo("initialised_from", {{"checkpoint", loaded.chosen.checkpoint->path()},
                               {"step", loaded.chosen.checkpoint->state().step},
                               {"parameters", loaded.count - loaded.absent.size()},
                               {"of", loaded.count}});
  if (loaded.absent.empty()) return;
  std::vector<std::string> named(loaded.absent.begin(), loaded.absent.end());
  if (named.size() > kMaxNamed) {
    const size_t more = named.size() - kMaxNamed;
    named.resize(kMaxNamed);
    named.push_back(absl::StrCat("and ", more, " more"));
  }
  LogWarning("initialised_anew", {{"parameters", absl::StrJoin(named, ", ")}});
}

}  // namespace

StartState::StartState(const JobConfig& job, const RankConfig& rank, CheckpointLayout layout,
                       const JobData& data, LoadingGang gang)
    : job_(job),
      rank_(rank),
      layout_(std::move(layout)),
      data_(data),
      gang_(gang),
      inputs_(data.files) {}

// If no controller says whether the job has begun, the content of its directory does.
bool StartState::BegunBefore() {
  int64_t begun = rank_.claimed;
  if (first_rank() && job_.checkpoint && !rank_.claimed) {
    const auto found = gang_.roots.FindDirectory(job_.checkpoint->directory);
    const auto loadable = found.ok() ? LoadableCheckpoints(*found) : found.status();
    begun = loadable.ok() ? !loadable->empty() : !absl::IsNotFound(loadable.status());
  }
  gang_.everyone.AllReduceMax(Tensor{{&begun, DType::kI64, Shape{1}}});
  return begun != 0;
}

absl::Status StartState::BeforeClaim() {
  const bool begun = BegunBefore();
  const bool continues = !rank_.claimed && (job_.continues || (rank_.alone && begun));
  StartPoint unclaimed;
  if (continues) {
    RETURN_IF_ERROR(AgreeOnStatus(gang_.everyone,
                                  first_rank() ? LookAtContinued(unclaimed) : absl::OkStatus()));
  } else if (!begun) {
    RETURN_IF_ERROR(Fill());
  } else {
    return absl::OkStatus();
  }
  return CheckInputs(unclaimed);  // The files of all hosts are the same.
}

// On rank 0. Whether the job may take over the directory that it names.
absl::Status StartState::LookAtContinued(StartPoint& unclaimed) {
  ASSIGN_OR_RETURN(unclaimed,
                   LookAtRun(job_.checkpoint->directory, rank_, gang_.roots, job_.continues));
  ASSIGN_OR_RETURN(const ChosenCheckpoint newest,
                   FirstGood(unclaimed.candidates, [this](const std::string& path) {
                     return Checkpoint::Open(path, gang_.roots);
                   }));
  continued_ = newest.checkpoint;
  return CheckContinued(*continued_, job_, rank_);
}

// Loads the parameters that the job names, if it names any and they are not loaded yet.
absl::Status StartState::Fill() {
  if (filled_) return absl::OkStatus();
  if (!job_.init_from.empty()) RETURN_IF_ERROR(FillFromInitFrom());
  if (!job_.model.import_path.empty()) {
    ASSIGN_OR_RETURN(ImportedParameters imported, LoadImport(job_.model, rank_.claimed, gang_));
    kept_ = std::move(imported.kept);
    inputs_.insert(inputs_.end(), imported.files.begin(), imported.files.end());
  }
  filled_ = true;
  return absl::OkStatus();
}

// On rank 0. If the directory cannot be read, returns nullopt, and the claim fails later.
std::optional<InitialisedFrom> StartState::TakenBefore() const {
  if (!first_rank() || !job_.checkpoint) return std::nullopt;
  const auto found = gang_.roots.FindDirectory(job_.checkpoint->directory);
  if (!found.ok()) return std::nullopt;
  return ReadInitialisedFrom(*found, job_.init_from).value_or(std::nullopt);
}

absl::Status StartState::FillFromInitFrom() {
  const absl::StatusOr<InitialParameters> loaded = LoadInitFrom({.path = job_.init_from,
                                                                 .subset = job_.init_from_subset,
                                                                 .loaded_before = rank_.claimed,
                                                                 .taken = TakenBefore(),
                                                                 .adapter = LoraNumbersOf(job_)},
                                                                gang_);
  if (!loaded.ok()) {
    return absl::Status(loaded.status().code(),
                        absl::StrCat("init_from: ", loaded.status().message()));
  }
  const Checkpoint& checkpoint = *loaded->chosen.checkpoint;
  init_from_ = {job_.init_from, checkpoint.path(), checkpoint.manifest().sha256};
  if (first_rank()) SayWhatWasTaken(*loaded);
  for (const std::string& reason : loaded->chosen.refused) {
    refused_.push_back(
        absl::StrCat("init_from: ", reason, "; taking ", init_from_->path, " instead"));
  }
  return absl::OkStatus();
}

// Takes over what the checkpoint keeps of an imported directory, which may be gone by now. Without
// it, only exports are less complete.
void StartState::KeepOf(const std::string& checkpoint) {
  if (job_.model.import_path.empty()) return;
  absl::StatusOr<KeptFiles> kept = FilesKept(checkpoint, gang_.roots);
  if (!kept.ok()) LogWarning("kept_files_unreadable", {{"error", kept.status().message()}});
  kept_ = std::move(kept).value_or(KeptFiles());
}

// Whether the imported model's files, which are kept besides, have the data's tokenizer.
bool StartState::ImportHasTokenizerOfData() const {
  return std::any_of(kept_.begin(), kept_.end(), [&](const auto& file) {
    return Sha256Of(file.second) == data_.splits.tokenizer_sha256;
  });
}

std::string StartState::TokenizerToKeepFrom() const {
  DataConfig data = job_.data;
  const std::string& of_data = data_.splits.tokenizer;
  if (const std::string* const named = TokenizerIn(data); named != nullptr) {
    const bool of_import = named->empty() || *named == job_.model.import_path;
    // What an earlier attempt kept of the import may be older than what this one reads.
    const bool older = !resumed_from_.empty() && !kept_.empty() && !ImportHasTokenizerOfData();
    return of_import && !(older && !of_data.empty()) ? "" : of_data;
  }
  // Files of tokens have said it.
  if (!of_data.empty()) return ImportHasTokenizerOfData() ? "" : of_data;
  const bool prompts = job_.validation && job_.validation->generate;
  const std::string named = prompts ? job_.validation->generate->tokenizer : "";
  if (!named.empty() && named != job_.model.import_path) {
    return TokenizerOrKept(job_, named, gang_.roots);
  }
  // The same files have said it to an earlier attempt.
  const std::string field = absl::StrCat(SectionOf(job_.data), ".tokenizer");
  const bool others = job_.continues && IsAllowed(job_.continues->allow, field);
  const bool lost = FactsOf(job_.data).of_token_files && !resumed_from_.empty() && !others;
  return lost ? KeptVocabulary(resumed_from_) : "";
}

// On rank 0. Reads the tokenizer of the data or the prompts, if it is not that of the imported
// model, which is kept besides. Where it cannot be read, generation and exports need the file where
// the spec has it. FAILED_PRECONDITION: it is no longer the one that encoded the data.
absl::Status StartState::KeepTokenizer() {
  const std::string path = TokenizerToKeepFrom();
  const std::string& of_data = data_.splits.tokenizer;
  const std::string& encoded_by = data_.splits.tokenizer_sha256;
  const auto changed = [](const std::string& file) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, ": changed after it had encoded the data; start the job again"));
  };
  if (path.empty()) {
    const bool of_import = !encoded_by.empty() && !kept_.empty();
    return of_import && !ImportHasTokenizerOfData() ? changed(of_data) : absl::OkStatus();
  }
  absl::StatusOr<KeptFiles> files = TokenizerToKeep(path, gang_.roots);
  if (!files.ok()) {
    LogWarning("tokenizer_not_kept", {{"error", files.status().message()}});
    return absl::OkStatus();
  }
  const bool of_data_changed =
      path == of_data && !encoded_by.empty() && VocabularySha256(*files) != encoded_by;
  if (of_data_changed) return changed(path);
  tokenizer_ = *std::move(files);
  return absl::OkStatus();
}

// Loads the checkpoint at which the run continues. Returns nullopt if there is none.
absl::StatusOr<std::optional<Continued>> StartState::Resume(
    const std::vector<std::string>& candidates) {
  const bool other_run = job_.continues || rank_.alone;
  ASSIGN_OR_RETURN(
      ChosenCheckpoint chosen,
      LoadNewest(candidates, gang_, other_run ? MayDiffer::kAtStart : MayDiffer::kAlways));
  if (!chosen.checkpoint) return std::nullopt;
  const RunState& state = chosen.checkpoint->state();
  // A checkpoint shows weights in NF4 as numbers, too, so another job could load them.
  const std::optional<LoraNumbers> adapter = LoraNumbersOf(job_);
  if (state.adapter && adapter && state.adapter->nf4.has_value() != adapter->nf4.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        chosen.checkpoint->path(), ": wanted a run whose base has the format of ",
        "adapter.lora.base, found one ", state.adapter->nf4 ? "in NF4" : "as it is computed"));
  }
  step_ = state.step;
  epoch_ = state.epoch;
  data_position_ = state.data_position;
  base_ = state.base;
  refused_ = std::move(chosen.refused);
  if (first_rank()) {
    resumed_from_ = chosen.checkpoint->path();
    KeepOf(resumed_from_);
    if (!continued_ || continued_->path() != chosen.checkpoint->path()) {
      may_continue_ = CheckContinued(*chosen.checkpoint, job_, rank_);
    }
  }
  LogInfo("resumed", {{"checkpoint", chosen.checkpoint->path()}, {"step", step_}});
  if (state.layout != layout_) {
    LogWarning("layout_changed", {{"before", ToString(state.layout)}, {"now", ToString(layout_)}});
  }
  return Continued{state.epoch, state.step};
}

absl::Status StartState::CompareWith(const RecordedInputs& recorded) const {
  const bool earlier = recorded.epoch != rank_.epoch;
  const std::string by = earlier ? absl::StrCat("attempt ", recorded.epoch) : "rank 0";
  const absl::Status same = CompareInputs(inputs_, recorded, by);
  if (same.ok()) return same;
  std::string help = "all hosts need the same files";
  if (earlier && (job_.continues || rank_.alone)) {
    help = "samples would be repeated or skipped; to go on nevertheless: --allow data";
    return absl::Status(same.code(), absl::StrCat(same.message(), "; ", help));
  }
  if (earlier) help = "to train with other files, submit the job with another checkpoint.directory";
  if (earlier && step_ > 0) {
    help = absl::StrCat("to train on with other files, submit a job with another ",
                        "checkpoint.directory and with init_from: ", job_.checkpoint->directory);
  }
  return absl::Status(same.code(), absl::StrCat(same.message(), "; ", help));
}

// Reads all tokens, each rank a part of them, unless an earlier attempt has done so.
absl::Status StartState::CheckTokensOnce(const RecordedInputs& recorded) {
  if (tokens_below_) return absl::OkStatus();
  const std::vector<std::shared_ptr<const TokenStream>>& streams = data_.splits.streams;
  const int64_t vocab = streams.empty() ? 0 : streams.front()->vocab();
  const bool known = recorded.tokens_below > 0 && recorded.tokens_below <= vocab;
  if (known && Holds(recorded, data_.files)) {
    tokens_below_ = recorded.tokens_below;
    return absl::OkStatus();
  }
  absl::StatusOr<bool> mine = CheckTokens(streams, {.part = gang_.everyone.rank(),
                                                    .parts = gang_.everyone.size(),
                                                    .threads = int(rank_.threads)});
  if (!mine.ok()) {
    mine = absl::Status(mine.status().code(),
                        absl::StrCat(data_.field, ": ", mine.status().message()));
  }
  RETURN_IF_ERROR(AgreeOnStatus(gang_.everyone, mine.status()));
  int64_t unread = *mine ? 0 : 1;
  gang_.everyone.AllReduceMax(Tensor{{&unread, DType::kI64, Shape{1}}});
  tokens_below_ = unread == 0 ? vocab : 0;
  if (unread != 0 && first_rank()) {
    LogWarning("tokens_not_checked",
               {{"because", "reading all of them would take more than a minute"},
                {"then", "one beyond the vocabulary ends the job at the step that reads it"}});
  }
  return absl::OkStatus();
}

// Compares the files of all ranks with those that the job's earliest attempt has read. If there is
// no such record, rank 0's files are the measure.
absl::Status StartState::CheckInputs(StartPoint& start) {
  if (inputs_.empty()) return absl::OkStatus();  // On all ranks: the job reads no file.
  RecordedInputs mine{rank_.epoch, inputs_};
  if (first_rank() && !start.inputs) start.inputs = mine;
  const std::string wanted = first_rank() ? ToJson(*start.inputs) : "";
  const auto recorded = ParseInputs(BroadcastText(gang_.everyone, wanted, 0));
  RETURN_IF_ERROR(
      AgreeOnStatus(gang_.everyone, recorded.ok() ? CompareWith(*recorded) : recorded.status()));
  RETURN_IF_ERROR(CheckTokensOnce(*recorded));
  if (!first_rank()) return absl::OkStatus();
  KeepEarlier(*recorded, mine);
  mine.tokens_below = *tokens_below_;
  start.inputs = std::move(mine);
  return absl::OkStatus();
}

absl::Status StartState::Load(StartPoint& start) {
  ASSIGN_OR_RETURN(const std::optional<Continued> continued, Resume(start.candidates));
  if (!continued) RETURN_IF_ERROR(Fill());
  RETURN_IF_ERROR(CheckInputs(start));
  absl::Status written = may_continue_;
  if (first_rank() && job_.checkpoint) written.Update(KeepTokenizer());
  if (written.ok() && first_rank() && job_.checkpoint) {
    start.job = ResolvedJobText(job_);
    written = ContinueFrom(continued, rank_, start, LocalStorage(), init_from_);
  }
  RETURN_IF_ERROR(AgreeOnStatus(gang_.everyone, written));
  for (const auto& reason : refused_) LogWarning("checkpoint_refused", {{"reason", reason}});
  refused_.resize(first_rank() ? std::min(refused_.size(), kMaxRefused) : 0);
  return absl::OkStatus();
}

}  // namespace trainyard
