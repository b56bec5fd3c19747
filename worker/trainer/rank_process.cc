#include "worker/trainer/rank_process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "kernels/collective/rendezvous.h"
#include "kernels/device/narrow.h"
#include "kernels/rates/matrix_rate.h"
#include "train/config/precision.h"
#include "worker/channel/client.h"
#include "worker/channel/unsent.h"
#include "worker/trainer/affinity.h"
#include "worker/trainer/flight_log.h"
#include "worker/trainer/heartbeat.h"
#include "worker/trainer/nccl_trace.h"
#include "worker/trainer/peers.h"
#include "worker/trainer/progress.h"

namespace trainyard {
namespace {

// How long to wait at the end for the daemon's acknowledgements, if there is a daemon. The rest is
// in a file for the next daemon.
constexpr absl::Duration kFarewell = absl::Seconds(2);

class SocketRendezvous final : public Rendezvous {
 public:
  explicit SocketRendezvous(channel::ChannelClient& client) : client_(client) {}
  absl::Status Set(const std::string& key, const std::string& value) override {
    client_.Set(key, value);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    return client_.Get(key, timeout);
  }

 private:
  channel::ChannelClient& client_;
};

// Returns the config of the only rank of a job without a worker. The peak is measured here, because
// no worker has done it. Nobody measures a peak of products in 8 bits.
absl::StatusOr<RankConfig> Alone(const JobConfig& job, const Backend& backend) {
  if (job.devices != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("job.devices: a trainer alone is one rank, found ", job.devices,
                     "; nearest legal value 1"));
  }
  ASSIGN_OR_RETURN(RankConfig rank, AloneRank(job));
  const DType multiplied = RowOf(job.precision).formats.multiplied();
  if (!IsNarrow(multiplied)) {
    ASSIGN_OR_RETURN(rank.peak_flops, MeasureMatrixRate(backend, multiplied, int(rank.threads)));
  }
  return rank;
}

// The record of a step that has ended just now.
StepRecord Ended(StepRecord record) {
  record.time = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  return record;
}

// Prints records, and sends them to the daemon if there is one.
class Reporter {
 public:
  Reporter(const TrainerConfig& config, channel::ChannelClient* client)
      : num_steps_(config.job.steps),
        prints_(!config.rank || config.rank->rank == 0),
        client_(client) {}

  void Ready(const StartRecord& record) {
    if (client_ != nullptr) client_->SendReady(record);
  }
  // Returns the step as a line of the history (train/checkpoint/history.h), in the format of the
  // local socket.
  static std::string HistoryLine(const StepRecord& record) {
    return channel::Encode({Ended(record)});
  }
  void EarlierStep(int64_t epoch, const std::string& line) {
    const absl::StatusOr<channel::Envelope> said = channel::Decode(line);
    const auto* step = said.ok() ? std::get_if<StepRecord>(&said->message) : nullptr;
    if (client_ == nullptr || step == nullptr) return;
    StepRecord earlier = *step;
    earlier.epoch = uint64_t(epoch);
    client_->SendStep(earlier);
  }
  void Step(const StepRecord& record) {
    seconds_ += record.phases.with_pauses(record.seconds);
    ++steps_;
    if (prints_) {
      std::puts(ProgressLine(record, num_steps_, seconds_ / double(steps_)).c_str());
      std::fflush(stdout);
    }
    if (client_ != nullptr) client_->SendStep(Ended(record));
  }
  void Checkpoint(const CheckpointRecord& record) {
    LogInfo("checkpoint", {{"step", record.step},
                           {"path", record.path},
                           {"bytes", record.size_bytes},
                           {"seconds", record.seconds}});
    if (client_ != nullptr) client_->SendCheckpoint(record);
  }
  void CheckpointFailed(int64_t step, const std::string& error) {
    if (client_ == nullptr) return;
    client_->SendCheckpoint({.step = uint64_t(step), .path = "", .error = error});
  }

 private:
  const int64_t num_steps_;
  const bool prints_;
  channel::ChannelClient* const client_;
  double seconds_ = 0;
  int64_t steps_ = 0;
};

bool StopRequested(const RankProcessOptions& options, const channel::ChannelClient* client) {
  if (options.stop_requested()) return true;
  if (client == nullptr) return false;
  if (client->disconnected_for() > options.daemon_patience) {
    LogWarning("daemon_lost", {{"for", absl::FormatDuration(client->disconnected_for())},
                               {"then", "checkpoint and stop"}});
    return true;
  }
  return client->stop_requested();
}

// Returns the path of the file of unsent reports, in the only directory where the rank may write.
std::string UnsentPath(const RankConfig& rank) {
  return (std::filesystem::path(rank.exit_report).parent_path() / channel::kUnsentName).string();
}

}  // namespace

absl::StatusOr<TrainingResult> RunRankProcess(const TrainerConfig& config, const RankDevice& device,
                                              const RankProcessOptions& options) {
  const Backend& backend = *device.backend;
  RankConfig rank;
  if (config.rank) {
    rank = *config.rank;
  } else {
    ASSIGN_OR_RETURN(rank, Alone(config.job, backend));
  }
  if (!rank.processors.empty()) {
    const absl::Status bound = RunOnProcessors(rank.processors);
    if (!bound.ok()) LogWarning("runs_on_any_processor", {{"error", bound.message()}});
  }
  Heartbeat heartbeat(*options.activity);
  StopWatcher stop_watcher(*options.activity);
  const auto beat = [&] {
    const channel::Progress progress = heartbeat.Now();
    stop_watcher.Beat(progress);
    return progress;
  };
  std::unique_ptr<channel::ChannelClient> client;
  if (!rank.socket.empty()) {
    client = channel::ChannelClient::Create(
        {.path = rank.socket,
         .hello = {rank.job_id, uint64_t(rank.epoch), uint32_t(rank.rank), ::getpid()},
         .unsent = UnsentPath(rank),
         .progress = beat});
  }
  Reporter reporter(config, client.get());
  TrainerCallbacks callbacks{
      .ready = [&](const StartRecord& record) { reporter.Ready(record); },
      .step = [&](const StepRecord& record) { reporter.Step(record); },
      .checkpoint = [&](const CheckpointRecord& record) { reporter.Checkpoint(record); },
      .checkpoint_failed =
          [&](int64_t step, const std::string& error) { reporter.CheckpointFailed(step, error); },
      .history_line = Reporter::HistoryLine,
      .earlier_step = [&](int64_t epoch,
                          const std::string& line) { reporter.EarlierStep(epoch, line); },
      .stop_requested = [&] { return StopRequested(options, client.get()); },
      .progress = [&](const char* phase, int64_t step) { heartbeat.Advance(phase, step); },
      .open_lines = options.open_lines,
      .open_prompts = options.open_prompts,
      .before_attempt = options.before_attempt};
  if (rank.world > 1 && client == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank.socket: ", rank.world, " ranks need one to find each other"));
  }
  ASSIGN_OR_RETURN(const Peers peers,
                   Meet(rank, device,
                        client == nullptr ? nullptr : std::make_unique<SocketRendezvous>(*client)));
  if (WantsNcclTrace(config) && !peers.nccl) {
    LogWarning("nccl_not_traced",
               {{"because", "CPU ranks and ranks that share a GPU have no NCCL"}});
  }
  peers.world().CountIn(*options.activity);
  ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                   Trainer::Create(config.job, rank, backend, peers.world(), std::move(callbacks)));
  absl::StatusOr<TrainingResult> result = trainer->Run();
  if (client != nullptr && client->disconnected_for() == absl::ZeroDuration()) {
    const absl::Status flushed = client->Flush(kFarewell);
    if (!flushed.ok()) LogWarning("daemon_not_told", {{"error", flushed.message()}});
  }
  return result;
}

}  // namespace trainyard
