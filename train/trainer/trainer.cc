#include "train/trainer/trainer.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "models/arch/flops.h"
#include "models/arch/registry.h"
#include "train/checkpoint/history.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/save.h"
#include "train/config/adapter.h"
#include "train/config/frozen.h"
#include "train/config/resolve_model.h"
#include "train/data/batch_reader.h"
#include "train/data/dataset.h"
#include "train/start/order_check.h"
#include "train/start/start_point.h"
#include "train/start/start_state.h"
#include "train/step/agree.h"
#include "train/step/job_data.h"
#include "train/step/layout.h"
#include "train/step/prefetch.h"
#include "train/step/rank_engine.h"
#include "train/step/snapshot.h"
#include "train/step/step_runner.h"
#include "train/trainer/collective_use.h"
#include "train/trainer/counted_targets.h"
#include "train/trainer/learning_rate.h"
#include "train/trainer/model_flops.h"
#include "train/trainer/profiler.h"
#include "train/trainer/recorded_numbers.h"
#include "train/trainer/reference.h"
#include "train/trainer/reported_checkpoints.h"
#include "train/trainer/state_check.h"
#include "train/trainer/step_clock.h"
#include "train/trainer/successor_watch.h"
#include "train/trainer/validation.h"

namespace trainyard {
namespace {

constexpr size_t kMaxUnsavedHistory = 4 << 20;  // Bytes.

constexpr int kAttempts = 2;  // Attempts at a step whose loss or gradient is not finite.

class RankTrainer final : public Trainer {
 public:
  RankTrainer(const JobConfig& job, const RankConfig& rank, const Backend& backend,
              CollectiveWorld& world, TrainerCallbacks callbacks)
      : job_(job),
        rank_(rank),
        backend_(backend),
        world_(world),
        callbacks_(std::move(callbacks)),
        roots_(rank.roots) {
    CHECK(world.size() == job.devices && world.rank() == rank.rank)
        << "rank " << world.rank() << " of " << world.size() << " for rank " << rank.rank << " of "
        << job.devices;
  }

  // Meets the other ranks. Call it first.
  absl::Status Meet();
  // Prepares what a rank can prepare without the others.
  absl::Status Prepare();
  absl::Status MakeEngine();
  absl::Status MakeValidation();
  void WatchEngine();  // Once all ranks have an engine.
  absl::Status MakeProfiler();
  // Sets initial values, or those that the job names if it cannot have a checkpoint of its own yet.
  absl::Status Initialise();
  absl::Status Begin();  // On rank 0: BeginAttempt.
  // Finds the directory that rank 0 has claimed, to which every rank writes.
  absl::Status ShareCheckpointDirectory();
  // Loads the state to start from, which is the same on all ranks.
  absl::Status Load();
  absl::Status TakeReference();
  Collective& everyone() { return *everyone_; }

  // Runs `body`, which uses the device. Whoever catches a DeviceError has no executable any more,
  // so its information is added to the message here. Also aborts this rank's communication, because
  // destructors would wait for it.
  template <typename Body>
  auto Explaining(const Body& body) {
    try {
      return body();
    } catch (const DeviceError& error) {
      world_.Abort();
      throw DeviceError(error.kind, absl::StrCat(error.what(), "; ", executable().LastGiven()));
    }
  }
  absl::StatusOr<TrainingResult> Run() override {
    return Explaining([this] { return RunSteps(); });
  }

 private:
  absl::StatusOr<TrainingResult> RunSteps();
  absl::Status OpenDataset();
  void TellEarlierSteps() const;
  absl::Status SupersededError() const;

  absl::StatusOr<StepRecord> Step(int64_t step);
  Agreement Attempt(int attempt, const StepBatch& batch, const StepInput& input,
                    StepRecord& record);
  absl::Status Validate(StepRecord& record);
  absl::StatusOr<std::optional<CheckpointRecord>> MakeCheckpoint(int64_t step, StepRecord& record,
                                                                 OpenedCheckpoints& opened);
  absl::StatusOr<CheckpointRecord> Save(const StepRecord& last, OpenedCheckpoints& opened);
  void NoteHistory(const StepRecord& record);
  absl::Status SaveHistory();

  bool ValidationDue(int64_t step) const {
    return job_.validation && (step % job_.validation->every_steps == 0 || step == job_.steps);
  }
  bool CheckpointDue(int64_t step) const {
    if (!job_.checkpoint) return false;
    const int64_t every = job_.checkpoint->every_steps;
    return stopping_ || step == job_.steps || (every > 0 && step % every == 0);
  }
  void Advance(const char* phase, int64_t step) const {
    if (callbacks_.progress) callbacks_.progress(phase, step);
  }
  int64_t tokens_per_step() const { return job_.batch.global * job_.batch.sequence; }
  // For an error of only this rank: the others would wait for sums in which it takes no part.
  absl::Status Leave(const absl::Status& status) const {
    world_.Abort();
    return status;
  }
  bool first_rank() const { return world_.rank() == 0; }
  Executable& executable() { return engine_->executable(); }

  const JobConfig job_;
  const RankConfig rank_;
  const Backend& backend_;
  CollectiveWorld& world_;
  std::unique_ptr<Collective> everyone_;
  const TrainerCallbacks callbacks_;
  const Roots roots_;

  ModelConfig model_;
  std::optional<ModelFlops> flops_;
  std::optional<double> peak_flops_;     // All ranks together.
  std::string checkpoint_directory_;     // Canonical.
  StartPoint start_;                     // Set on rank 0.
  std::string unsaved_history_;          // Lines of the steps since the last checkpoint, on rank 0.
  std::optional<SuccessorWatch> watch_;  // On rank 0, if the job has checkpoints.
  JobData data_;
  BatchShape shape_;
  std::optional<BatchReader> train_reader_;
  std::unique_ptr<RankEngine> engine_;
  std::unique_ptr<JobValidation> validation_;  // Ends before the engine, as the next two.
  std::optional<StateCheck> state_check_;
  std::optional<StartState> starting_;
  CollectiveMeter meter_;
  StepClock step_clock_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::optional<Profiler> profiler_;  // Ends before the engine.

  int64_t step_ = 0;           // Finished steps.
  int64_t data_position_ = 0;  // Samples that those steps consumed.
  bool stopping_ = false;      // This and the next: all ranks agree.
  bool superseded_ = false;
  bool freezes_ = false;               // Some rank holds frozen parameters.
  std::optional<BaseReference> base_;  // The frozen parameters, once written.
  StepState left_;                     // The state after the last attempt.
};

absl::Status RankTrainer::Meet() {
  ASSIGN_OR_RETURN(everyone_, world_.Everyone());
  peak_flops_ = SumWhereAllKnow(*everyone_, rank_.peak_flops);
  return absl::OkStatus();
}

absl::Status RankTrainer::Prepare() {
  ASSIGN_OR_RETURN(model_, ResolveModel(job_.model));
  flops_.emplace(job_, model_);
  return OpenDataset();
}

absl::Status RankTrainer::OpenDataset() {
  absl::StatusOr<JobData> data =
      OpenJobData(job_, CreateModel(model_)->inputs(), roots_, callbacks_.open_lines);
  // An earlier attempt has found the data, so this host has failed.
  const bool away = absl::IsNotFound(data.status()) || absl::IsPermissionDenied(data.status());
  RETURN_IF_ERROR(rank_.claimed && away ? OfThisHost(data.status()) : data.status());
  data_ = *std::move(data);
  Mesh mesh = MeshOf(job_, model_);
  mesh.rank = world_.rank();
  constexpr AxisSet kSequences = {Axis::kExpert, Axis::kData};
  shape_ = {.global = job_.batch.global,
            .micro = job_.batch.micro,
            .data_parallel = mesh.size(kSequences),
            .data_rank = mesh.coordinate(kSequences)};
  train_reader_.emplace(*data_.splits.train, SampleOrder::kShuffled, job_.seed, shape_);
  if (job_.validation && data_.splits.validation == nullptr) {
    return absl::InvalidArgumentError(
        "validation: wanted data that is held out, found none; give data a validation_fraction");
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::MakeValidation() {
  if (!job_.validation) return absl::OkStatus();
  ASSIGN_OR_RETURN(validation_,
                   JobValidation::Create(
                       {.job = job_,
                        .model = model_,
                        .data = data_,
                        .shape = shape_,
                        .engine = *engine_,
                        .everyone = *everyone_,
                        .open_prompts = callbacks_.open_prompts,
                        .roots = roots_,
                        .progress = [this] { Advance("validation", step_); },
                        .stop = callbacks_.stop_requested,
                        .leave = [this](const absl::Status& status) { return Leave(status); }}));
  return absl::OkStatus();
}

absl::Status RankTrainer::Begin() {
  if (!first_rank()) return absl::OkStatus();
  if (job_.checkpoint) {
    ASSIGN_OR_RETURN(start_, BeginAttempt(job_.checkpoint->directory, rank_, roots_, LocalStorage(),
                                          job_.continues));
    checkpoint_directory_ = start_.directory;
    watch_.emplace([directory = checkpoint_directory_, epoch = rank_.epoch] {
      return !CheckNewest(directory, epoch).ok();
    });
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::ShareCheckpointDirectory() {
  if (!job_.checkpoint) return absl::OkStatus();
  const std::string claimed = BroadcastText(*everyone_, checkpoint_directory_, 0);
  if (first_rank()) return absl::OkStatus();
  absl::StatusOr<std::string> found = roots_.FindDirectory(claimed);
  if (found.ok() && !Exists(EpochPath(*found, rank_.epoch))) {
    found = absl::FailedPreconditionError(
        absl::StrCat(*found, ": wanted what rank 0 has begun there, found another directory"));
  }
  if (!found.ok()) {
    const std::string message =
        absl::StrCat("checkpoint directory of rank 0: ", found.status().message(),
                     "; all ranks write to it, on a file system that they share");
    return rank_.claimed ? StorageFault(claimed, absl::StrCat("cannot be used (", message, ")"))
                         : absl::Status(found.status().code(), message);
  }
  checkpoint_directory_ = *std::move(found);
  return absl::OkStatus();
}

absl::Status RankTrainer::MakeEngine() {
  const EngineOptions options{.threads = int(rank_.threads),
                              .memory_bytes = rank_.memory_bytes,
                              .host_memory_bytes = rank_.host_memory_bytes,
                              .edit = callbacks_.edit_program};
  ASSIGN_OR_RETURN(engine_, RankEngine::Create(job_, model_, options, backend_, world_));
  return CheckOrder(executable().program(), executable().plan(), engine_->schedule(),
                    backend_.device());
}

void RankTrainer::WatchEngine() {
  if (Freezes(job_)) {
    int64_t frozen = executable().program().FrozenParameters().empty() ? 0 : 1;
    everyone_->AllReduceMax(Tensor{{&frozen, DType::kI64, Shape{1}}});
    freezes_ = frozen != 0;
  }
  state_check_.emplace(executable(), *everyone_);
  meter_.Watch(everyone_->name(), *everyone_);
  for (const auto& [group, collective] : engine_->collectives()) {
    meter_.Watch(Names(group.axes), *collective);
  }
}

absl::Status RankTrainer::MakeProfiler() {
  if (!Traces(job_, rank_.rank)) return absl::OkStatus();
  const auto directory = roots_.MakeDirectory(job_.profile->directory);
  if (!directory.ok()) {
    return absl::Status(directory.status().code(),
                        absl::StrCat("profile.directory: ", directory.status().message()));
  }
  profiler_.emplace(*job_.profile, rank_, *directory, executable());
  return absl::OkStatus();
}

absl::Status RankTrainer::Initialise() {
  executable().WriteStepState({.seed = job_.seed});
  executable().Run(Action::kInit);
  starting_.emplace(job_, rank_, RecordedLayout(job_, rank_.threads), data_,
                    LoadingGang{model_, roots_, *everyone_, executable()});
  return starting_->BeforeClaim();
}

absl::Status RankTrainer::Load() {
  RETURN_IF_ERROR(starting_->Load(start_));
  step_ = starting_->step();
  data_position_ = starting_->data_position();
  base_ = starting_->base();
  state_check_->Begin();
  executable().Run(Action::kPrepare);
  RETURN_IF_ERROR(TakeReference());
  prefetcher_ = std::make_unique<Prefetcher>(*train_reader_, engine_->part(), job_.batch.global);
  return absl::OkStatus();
}

// What the reference says of all pairs, if the job has one. It is that of the parameters with which
// the run begins, so only a run without a checkpoint can compute it.
absl::Status RankTrainer::TakeReference() {
  if (!job_.preference || job_.preference->method != PreferenceMethod::kDpo) {
    return absl::OkStatus();
  }
  if (step_ == 0) {
    const absl::Status computed =
        ComputeReference({.job = job_,
                          .splits = data_.splits,
                          .shape = shape_,
                          .engine = *engine_,
                          .everyone = *everyone_,
                          .progress = [this] { Advance("validation", 0); }});
    if (!computed.ok()) return Leave(computed);
  }
  if (!job_.checkpoint) return absl::OkStatus();
  return KeepReference(job_, data_,
                       {.directory = checkpoint_directory_,
                        .epoch = rank_.epoch,
                        .read_from = step_ == 0 ? 0 : starting_->epoch()},
                       *everyone_);
}

void RankTrainer::TellEarlierSteps() const {
  if (!first_rank() || !callbacks_.earlier_step) return;
  ReadHistory(checkpoint_directory_, start_.lineage, start_.history_after, callbacks_.earlier_step);
}

absl::Status RankTrainer::SupersededError() const {
  const absl::Status seen = CheckNewest(checkpoint_directory_, rank_.epoch);
  return seen.ok() ? absl::AbortedError("rank 0: superseded by a later attempt of this job") : seen;
}

absl::StatusOr<TrainingResult> RankTrainer::RunSteps() {
  if (callbacks_.ready) {
    StartRecord start = {.step = uint64_t(step_),
                         .refused = starting_->refused(),
                         .earlier_starts = start_.earlier_starts};
    if (first_rank() && job_.checkpoint) {
      OpenedCheckpoints opened;
      start.loadable = ReportLoadable(checkpoint_directory_, opened);
      if (job_.checkpoint->keep_best > 0) start.best = ReportBest(checkpoint_directory_, opened);
    }
    callbacks_.ready(start);
  }
  TellEarlierSteps();
  TrainingResult result;
  result.step = step_;
  step_clock_.Start();
  while (step_ < job_.steps && !stopping_) {
    const int64_t step = step_ + 1;
    if (profiler_) profiler_->BeginStep(step);
    ASSIGN_OR_RETURN(StepRecord record, Step(step));
    if (profiler_) profiler_->EndStep(step);
    if (superseded_) return SupersededError();
    std::optional<CheckpointRecord> saved;
    if (!record.skipped) {
      step_ = step;
      data_position_ += job_.batch.global;
      if (step % StateCheck::kCompareEvery == 0 && !CheckpointDue(step)) {
        RETURN_IF_ERROR(state_check_->Compare(step, /*look_at_memory=*/false));
      }
      if (ValidationDue(step)) RETURN_IF_ERROR(Validate(record));
      NoteHistory(record);
      OpenedCheckpoints opened;
      if (CheckpointDue(step) ||
          IsWorthKeeping(record, job_, checkpoint_directory_, opened, *everyone_)) {
        ASSIGN_OR_RETURN(saved, MakeCheckpoint(step, record, opened));
      }
    }
    record.collectives = meter_.Take();
    if (callbacks_.step) callbacks_.step(record);
    // After the step's own record: whoever resumes from the checkpoint must know all steps before.
    if (saved && callbacks_.checkpoint) callbacks_.checkpoint(*saved);
    result.step = step_;
    if (record.skipped) {
      result.outcome = Outcome::kNotFinite;
      result.message =
          absl::StrCat("loss or gradient of step ", step, " was not finite at ", kAttempts,
                       " attempts: loss ", record.loss, ", gradient norm ", record.grad_norm);
      return result;
    }
  }
  if (stopping_ && step_ < job_.steps) {
    result.outcome = Outcome::kStopped;
    result.message = absl::StrCat("stopped after step ", step_, " of ", job_.steps);
  }
  return result;
}

absl::StatusOr<StepRecord> RankTrainer::Step(int64_t step) {
  StepRecord record;
  record.step = uint64_t(step);
  step_clock_.Pause();
  Advance("data", step);
  const absl::StatusOr<StepBatch> batch = prefetcher_->Take(data_position_);
  if (!batch.ok()) return Leave(batch.status());
  StepInput input = {.step = step,
                     .learning_rate = LearningRate(job_.optimizer, step, job_.steps),
                     .clip_norm = job_.optimizer.clip_norm,
                     .tokens = tokens_per_step(),
                     .seed = job_.seed};
  if (!data_.splits.train->counts_all_targets()) {
    input.counts = SumCounts(*batch, engine_->mesh(), engine_->part(), *everyone_);
  }
  record.phases.data = step_clock_.Resume();
  RETURN_IF_ERROR(CheckCounted(data_.field, input.tokens, input.counts.uncounted));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Agreement agreed = Attempt(attempt, *batch, input, record);
    if (const absl::Status state = state_check_->AfterUpdate(left_); !state.ok()) {
      return Leave(state);
    }
    stopping_ |= agreed.stop;
    superseded_ |= agreed.superseded;
    record.skipped = !agreed.finite;
    if (agreed.finite) break;
    LogWarning("step_not_finite", {{"step", step},
                                   {"attempt", attempt + 1},
                                   {"loss", record.loss},
                                   {"grad_norm", record.grad_norm}});
  }
  // A flipped bit of an exponent looks like a divergence, which would end the job.
  if (record.skipped) RETURN_IF_ERROR(state_check_->Compare(step_, /*look_at_memory=*/true));
  record.tokens = uint64_t(tokens_per_step());
  record.padding_ratio = data_.splits.padding;
  record.model_flops = flops_->OfStep(*batch, engine_->part(), engine_->mesh(), *everyone_);
  record.model_flops_per_second_per_device =
      record.model_flops / (record.seconds * double(world_.size()));
  record.peak_flops = peak_flops_;
  if (peak_flops_) record.mfu = Mfu(record.model_flops, record.seconds, *peak_flops_);
  record.memory_bytes = uint64_t(backend_.MemoryInUse());
  record.memory_planned_bytes = uint64_t(executable().plan().total_bytes());
  return record;
}

Agreement RankTrainer::Attempt(int attempt, const StepBatch& batch, const StepInput& input,
                               StepRecord& record) {
  record.learning_rate = input.learning_rate;
  StepState state = InitialState(input);
  const auto advance = [&] { Advance("step", input.step); };
  advance();
  if (callbacks_.before_attempt) callbacks_.before_attempt(input.step, attempt, state);
  const StepOutput output = engine_->runner().Step(state, batch, advance);
  left_ = output.state;
  const double mine = step_clock_.End();
  const Agreement agreed =
      Agree(*everyone_, {.finite = output.state.finite != 0,
                         .stop = callbacks_.stop_requested && callbacks_.stop_requested(),
                         .superseded = watch_ && watch_->seen(),
                         .seconds = mine});
  const double waited = agreed.seconds - mine;  // For the slowest rank.
  step_clock_.BeginNext(waited);
  record.seconds += agreed.seconds;
  record.phases += output.phases;
  record.phases.grad_sync += waited;
  RecordState(output.state, job_, model_, record);
  return agreed;
}

absl::Status RankTrainer::Validate(StepRecord& record) {
  step_clock_.Pause();
  RETURN_IF_ERROR(validation_->Measure(record));
  record.phases.validation = step_clock_.Resume();
  return absl::OkStatus();
}

void RankTrainer::NoteHistory(const StepRecord& record) {
  if (!first_rank() || !job_.checkpoint || !callbacks_.history_line) return;
  absl::StrAppend(&unsaved_history_, callbacks_.history_line(record), "\n");
  // Lines written here are outside the lineage until a checkpoint follows.
  if (unsaved_history_.size() > kMaxUnsavedHistory && !SaveHistory().ok()) {
    LogWarning("history_dropped", {{"bytes", unsaved_history_.size()}});
    unsaved_history_.clear();
  }
}

// Makes a checkpoint. All ranks wait for the commit. So the wait counts as a checkpoint's and not
// as communication of the next step, and if the last checkpoint fails, all ranks fail. On rank 0
// returns the record to report.
absl::StatusOr<std::optional<CheckpointRecord>> RankTrainer::MakeCheckpoint(
    int64_t step, StepRecord& record, OpenedCheckpoints& opened) {
  step_clock_.Pause();
  Advance("checkpoint", step);
  RETURN_IF_ERROR(state_check_->Compare(step, /*look_at_memory=*/true));
  RETURN_IF_ERROR(AgreeOnStatus(*everyone_, first_rank()
                                                ? CheckNewest(checkpoint_directory_, rank_.epoch)
                                                : absl::OkStatus()));
  const absl::StatusOr<CheckpointRecord> saved = Save(record, opened);
  // The first rank has more to do. The others wait here, or their next step would include the wait.
  RETURN_IF_ERROR(AgreeOnStatus(*everyone_, absl::OkStatus()));
  record.phases.checkpoint = step_clock_.Resume();
  if (saved.ok()) return first_rank() ? std::make_optional(*saved) : std::nullopt;
  if (first_rank()) {
    const std::string error(saved.status().message());
    LogError("checkpoint_failed", {{"step", step}, {"error", error}});
    if (callbacks_.checkpoint_failed) callbacks_.checkpoint_failed(step, error);
  }
  if (!stopping_ && step < job_.steps) return std::nullopt;
  if (!absl::IsResourceExhausted(saved.status())) return OfThisHost(saved.status());
  return StorageFull(job_.checkpoint->directory, saved.status());
}

absl::StatusOr<CheckpointRecord> RankTrainer::Save(const StepRecord& last,
                                                   OpenedCheckpoints& opened) {
  const auto begin = std::chrono::steady_clock::now();
  RunState state{.job_id = rank_.job_id,
                 .epoch = rank_.epoch,
                 .step = step_,
                 .data_position = data_position_,
                 .seed = job_.seed,
                 .model = model_,
                 .layout = RecordedLayout(job_, rank_.threads),
                 .bf16_weights = executable().program().precision.weight == DType::kBF16,
                 .sequence = job_.batch.sequence,
                 .deterministic = job_.deterministic,
                 .build = absl::StrCat(Version(), "+", Revision()),
                 .adapter = LoraNumbersOf(job_),
                 .validation = ValidationOf(last, job_)};
  RETURN_IF_ERROR(AgreeOnStatus(*everyone_, SaveHistory()));
  if (freezes_ && BaseIsLost(checkpoint_directory_, base_, *everyone_)) base_.reset();
  if (freezes_ && !base_) {
    ASSIGN_OR_RETURN(
        base_, SaveBase(checkpoint_directory_, state, executable(), *everyone_, LocalStorage()));
  }
  state.base = base_;
  ASSIGN_OR_RETURN(
      const Manifest manifest,
      SaveSnapshot({checkpoint_directory_, state, &starting_->kept(), &starting_->tokenizer()},
                   executable(), *everyone_, LocalStorage()));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CheckpointRecord record{.step = last.step,
                          .path = CheckpointPath(checkpoint_directory_, rank_.epoch, step_),
                          .size_bytes = uint64_t(manifest.size_bytes()),
                          .seconds = took.count()};
  if (first_rank()) {
    RetainAndReport(checkpoint_directory_,
                    {.keep = job_.checkpoint->keep,
                     .epoch = rank_.epoch,
                     .keep_best = job_.checkpoint->keep_best},
                    opened, record);
  }
  return record;
}

absl::Status RankTrainer::SaveHistory() {
  RETURN_IF_ERROR(
      AppendHistory(checkpoint_directory_, rank_.epoch, unsaved_history_, LocalStorage()));
  unsaved_history_.clear();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const JobConfig& job,
                                                         const RankConfig& rank,
                                                         const Backend& backend,
                                                         CollectiveWorld& world,
                                                         TrainerCallbacks callbacks) {
  auto trainer = std::make_unique<RankTrainer>(job, rank, backend, world, std::move(callbacks));
  RETURN_IF_ERROR(trainer->Meet());
  // After each step the ranks agree, so that they do not wait for a rank that failed. Steps that
  // may fail come before the claim, so that a job that fails in them changes nothing.
  const auto agreed = [&](const auto& step) {
    return AgreeOnStatus(trainer->everyone(), ((*trainer).*step)());
  };
  RETURN_IF_ERROR(agreed(&RankTrainer::Prepare));
  RETURN_IF_ERROR(agreed(&RankTrainer::MakeEngine));
  RETURN_IF_ERROR(agreed(&RankTrainer::MakeValidation));
  trainer->WatchEngine();
  RETURN_IF_ERROR(trainer->Explaining([&] { return trainer->Initialise(); }));
  RETURN_IF_ERROR(agreed(&RankTrainer::Begin));
  RETURN_IF_ERROR(agreed(&RankTrainer::ShareCheckpointDirectory));
  RETURN_IF_ERROR(agreed(&RankTrainer::MakeProfiler));
  RETURN_IF_ERROR(trainer->Explaining([&] { return trainer->Load(); }));
  return trainer;
}

}  // namespace trainyard
