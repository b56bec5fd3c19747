// One rank of a job as a process: between the training loop (train/step) and what surrounds it, the
// worker daemon's socket, the other ranks, and the terminal.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/collective/activity.h"
#include "kernels/device/step_state.h"
#include "train/config/trainer_config.h"
#include "train/step/trainer.h"
#include "worker/channel/patience.h"
#include "worker/trainer/rank_device.h"

namespace trainyard {

struct RankProcessOptions {
  std::function<bool()> stop_requested;  // By a signal.
  // As in TrainerCallbacks.
  std::function<void(int64_t step, int attempt, StepState&)> before_attempt = nullptr;
  // What the rank's groups are at; whoever keeps it can tell after a DeviceError (flight_log.h).
  std::shared_ptr<GroupActivity> activity = std::make_shared<GroupActivity>();
  // Without a daemon for so long, a rank checkpoints and stops.
  absl::Duration daemon_patience = channel::kDetach;
};

// Trains to the end; throws DeviceError. Errors are those of Trainer, of meeting the other ranks
// (DEADLINE_EXCEEDED, UNAVAILABLE), and CANCELLED when a stop came before there was anything to
// stop.
absl::StatusOr<TrainingResult> RunRankProcess(const TrainerConfig& config, const RankDevice& device,
                                              const RankProcessOptions& options);

}  // namespace trainyard
