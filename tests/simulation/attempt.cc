#include "tests/simulation/attempt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "models/arch/decoder_config.h"
#include "tests/simulation/machine.h"
#include "train/checkpoint/history.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/save.h"
#include "worker/trainer/exit_report.h"

namespace trainyard::simulation {
namespace {

constexpr char kTensor[] = "state";

ModelConfig Model() {
  return {"llama", DecoderConfig{.layers = 2,
                                 .hidden = 4,
                                 .ffn = 8,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .head_dim = 2,
                                 .vocab = 16,
                                 .max_seq = 8,
                                 .norm_eps = 1e-5,
                                 .rope_base = 500000}};
}

}  // namespace

void Attempt::Join(std::shared_ptr<RankProcess> rank) {
  ranks_[rank->id().rank] = rank;
  rank->process().After(
      world_.queue.Between(absl::Milliseconds(50), absl::Milliseconds(500)),
      [self = shared_from_this(), rank = rank.get()] { rank->Meet(self->plan_.ranks); });
}

void Attempt::Met() {
  const bool all = std::all_of(ranks_.begin(), ranks_.end(),
                               [](const auto& rank) { return rank != nullptr && rank->met(); });
  if (!all || std::exchange(began_, true)) return;
  for (const auto& lost : ranks_) {
    if (!lost->process().alive()) return Died(*lost, false);
  }
  Together(absl::Milliseconds(100), &Attempt::Begin);
}

void Attempt::Together(absl::Duration delay, Step action) {
  world_.queue.After(delay, [self = shared_from_this(), action] {
    if (self->over_) return;
    bool waits = false;
    for (const auto& rank : self->ranks_) {
      if (!rank->process().alive()) return;  // Its peers stand where they are.
      waits |= rank->process().frozen();
      waits |= self->ranks_.size() > 1 && rank->machine().isolated;
    }
    if (waits) return self->Together(absl::Milliseconds(100), action);
    ((*self).*action)();
  });
}

void Attempt::Died(const RankProcess& lost, bool silently) {
  if (over_ || silently || !began_) return;
  for (const auto& rank : ranks_) {
    if (rank != nullptr && rank->process().alive()) PeerLost(rank, lost);
  }
}

void Attempt::PeerLost(const std::shared_ptr<RankProcess>& rank, const RankProcess& lost) {
  const absl::Duration delay =
      world_.queue.Between(absl::Milliseconds(20), absl::Milliseconds(500));
  rank->process().After(delay, [self = shared_from_this(), rank = rank.get(), &lost] {
    if (rank->machine().isolated || lost.machine().isolated) {
      return self->PeerLost(self->ranks_[rank->id().rank], lost);
    }
    rank->Exit({.cause = ExitCause::kPeerLost, .exit_code = 1, .message = "lost a peer"});
  });
}

// As AgreeOnStatus has it: what the host of rank 0 lacks, another one may have.
void Attempt::EndAll(const absl::Status& status) {
  over_ = true;
  for (const auto& rank : ranks_) {
    const bool peer = rank != ranks_[0] && IsStorageFault(status);
    const ExitReport report = ReportOf(peer ? absl::UnavailableError("rank 0") : status);
    rank->process().After(world_.queue.Between({}, absl::Milliseconds(300)),
                          [rank = rank.get(), report, message = Short(report.message)] {
                            rank->Exit({.cause = report.cause, .exit_code = 1, .message = message});
                          });
  }
}

std::string Attempt::Short(const std::string& text) const {
  return absl::StrReplaceAll(text, {{world_.share, ""}, {world_.nowhere, ""}});
}

void Attempt::Begin() {
  if (plan_.saves) {
    static_cast<AttemptFacts&>(rank_) = order_;
    const bool absent = order_.claimed && !ranks_[0]->machine().mounted;
    const std::string directory =
        absl::StrCat(absent ? world_.nowhere : world_.share, "/", plan_.directory);
    absl::StatusOr<StartPoint> start = BeginAttempt(directory, rank_, Roots());
    if (!start.ok()) return EndAll(start.status());
    start_ = *std::move(start);
  }
  looked_at_ = world_.queue.now();
  Together(world_.queue.Between(absl::Milliseconds(50), absl::Milliseconds(500)), &Attempt::Load);
}

absl::Status Attempt::LoadState() {
  state_ = plan_.initial();
  std::optional<Continued> continued;
  absl::StatusOr<ChosenCheckpoint> chosen =
      FirstGood(start_.candidates, [this](const std::string& path) {
        return ReadCheckpoint(path, Roots(), [this](const Checkpoint& c) { return LoadFrom(c); });
      });
  // As the gang's (train/start/load_together.h).
  if (absl::IsDataLoss(chosen.status())) return absl::InternalError(chosen.status().message());
  RETURN_IF_ERROR(OfThisHost(chosen.status()));
  if (chosen->checkpoint) {
    const RunState& state = chosen->checkpoint->state();
    step_ = uint64_t(state.step);
    continued = Continued{state.epoch, state.step};
  }
  refused_ = std::move(chosen->refused);
  return plan_.saves ? ContinueFrom(continued, rank_, start_) : absl::OkStatus();
}

absl::Status Attempt::LoadFrom(const Checkpoint& checkpoint) {
  const TargetBox box = {.name = kTensor,
                         .kind = TensorKind::kParameter,
                         .dtype = DType::kF64,
                         .global_shape = Shape{1},
                         .box = WholeBox(Shape{1}),
                         .data = &state_};
  return checkpoint.Load({&box, 1});
}

void Attempt::Load() {
  if (const absl::Status status = LoadState(); !status.ok()) return EndAll(status);
  world_.queue.Trace("attempt ", order_.job_id, ".", order_.epoch, " goes on from step ", step_);
  Together(world_.queue.Between(absl::Milliseconds(50), absl::Milliseconds(500)), &Attempt::Ready);
}

std::vector<LoadableCheckpoint> Attempt::Loadable() const {
  std::vector<LoadableCheckpoint> loadable;
  const auto listed = LoadableCheckpoints(start_.directory);
  for (const ListedCheckpoint& c : listed.value_or(std::vector<ListedCheckpoint>())) {
    const auto opened = Checkpoint::Open(c.path);
    if (!opened.ok()) continue;
    loadable.push_back(
        {uint64_t(c.epoch), uint64_t(c.step), Short(c.path), opened->manifest().size_bytes()});
  }
  return loadable;
}

void Attempt::Ready() {
  for (const auto& rank : ranks_) {
    channel::Ready ready{.step = step_};
    if (rank == ranks_[0] && plan_.saves) {
      for (const std::string& reason : refused_) ready.refused.push_back(Short(reason));
      ready.loadable = Loadable();
      ready.earlier_starts = start_.earlier_starts;
    }
    rank->Report(ready);
  }
  if (plan_.saves) TellEarlierSteps();
  RunStep();
}

void Attempt::TellEarlierSteps() {
  ReadHistory(start_.directory, start_.lineage, start_.history_after,
              [this](int64_t epoch, const std::string& line) {
                const auto said = channel::Decode(line);
                channel::Step step = std::get<channel::Step>(said->message);
                step.epoch = uint64_t(epoch);
                ranks_[0]->Report(step);
              });
}

bool Attempt::SeesLaterAttempt() {
  if (!plan_.saves || world_.queue.now() - looked_at_ < absl::Seconds(1)) return false;
  looked_at_ = world_.queue.now();
  return !CheckNewest(start_.directory, int64_t(order_.epoch)).ok();
}

void Attempt::RunStep() {
  if (step_ == plan_.steps) return Complete();
  Together(world_.queue.Between(plan_.step_time / 2, 2 * plan_.step_time), &Attempt::DoStep);
}

void Attempt::DoStep() {
  if (SeesLaterAttempt()) {
    return EndAll(CheckNewest(start_.directory, int64_t(order_.epoch)));
  }
  state_ = plan_.Next(state_, ++step_);
  record_ = {};
  record_.step = step_;
  record_.loss = JobPlan::LossOf(state_);
  record_.tokens = 128;
  record_.seconds = absl::ToDoubleSeconds(plan_.step_time);
  record_.time = absl::ToDoubleSeconds(world_.queue.clock().Now() - absl::UnixEpoch());
  if (!plan_.saves) return FinishStep(std::nullopt);
  absl::StrAppend(&unsaved_history_, channel::Encode({record_}), "\n");
  const bool due = step_ == plan_.steps || step_ % plan_.save_every == 0;
  due ? WriteCheckpoint() : FinishStep(std::nullopt);
}

RunState Attempt::State() const {
  RunState state;
  state.job_id = order_.job_id;
  state.epoch = int64_t(order_.epoch);
  state.step = int64_t(step_);
  state.data_position = int64_t(8 * step_);
  state.model = Model();
  state.layout.data = plan_.ranks;
  state.build = "simulation";
  return state;
}

void Attempt::WriteCheckpoint() {
  const int64_t epoch = int64_t(order_.epoch), step = int64_t(step_);
  const auto write = [&]() -> absl::Status {
    Storage& storage = LocalStorage();
    RETURN_IF_ERROR(AppendHistory(start_.directory, epoch, unsaved_history_, storage));
    unsaved_history_.clear();
    RETURN_IF_ERROR(BeginCheckpoint(start_.directory, epoch, step, storage));
    const SourceBox box = {kTensor,  TensorKind::kParameter, DType::kF64,
                           Shape{1}, WholeBox(Shape{1}),     &state_};
    ASSIGN_OR_RETURN(
        written_, WriteRank(CheckpointPath(start_.directory, epoch, step), 0, {&box, 1}, storage));
    return absl::OkStatus();
  };
  absl::Status status = CheckNewest(start_.directory, epoch);
  if (status.ok()) status = write();
  if (!status.ok()) return EndAll(status);
  Together(world_.queue.Between({}, absl::Milliseconds(200)), &Attempt::Commit);
}

void Attempt::Commit() {
  const auto committed =
      CommitCheckpoint(start_.directory, State(), std::move(written_), LocalStorage());
  if (!committed.ok()) return EndAll(committed.status());
  world_.queue.Trace("attempt ", order_.job_id, ".", order_.epoch, " saves step ", step_);
  world_.committed(order_.job_id, plan_, int64_t(order_.epoch), int64_t(step_));
  Together(world_.queue.Between({}, absl::Milliseconds(50)), &Attempt::Prune);
}

void Attempt::Prune() {
  const int64_t epoch = int64_t(order_.epoch);
  const Retention retention = {.keep = plan_.keep, .epoch = epoch};
  const absl::Status pruned = ApplyRetention(start_.directory, retention, LocalStorage());
  if (!pruned.ok()) world_.queue.Fail(absl::StrCat("retention: ", pruned.ToString()));
  channel::Checkpoint saved{.step = step_,
                            .path = Short(CheckpointPath(start_.directory, epoch, int64_t(step_))),
                            .size_bytes = 8,
                            .seconds = 0.1,
                            .retained = {}};
  const auto listed = LoadableCheckpoints(start_.directory);
  for (const ListedCheckpoint& c : listed.value_or(std::vector<ListedCheckpoint>())) {
    saved.retained.push_back({uint64_t(c.epoch), uint64_t(c.step)});
  }
  FinishStep(std::move(saved));
}

// After its step: whoever resumes from it must have heard of all the steps before.
void Attempt::FinishStep(std::optional<channel::Checkpoint> saved) {
  for (const auto& rank : ranks_) {
    const bool first = rank == ranks_[0];
    rank->process().After(world_.queue.Between({}, absl::Milliseconds(30)),
                          [rank = rank.get(), step = record_, saved, first] {
                            rank->Report(step);
                            if (first && saved) rank->Report(*saved);
                          });
  }
  RunStep();
}

void Attempt::Complete() {
  over_ = true;
  for (const auto& rank : ranks_) {
    rank->process().After(
        world_.queue.Between(absl::Milliseconds(50), absl::Milliseconds(300)),
        [rank = rank.get()] { rank->Exit({.cause = ExitCause::kCompleted, .message = ""}); });
  }
}

}  // namespace trainyard::simulation
