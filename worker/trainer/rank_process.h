// One rank of a job as a process. Connects the training loop (train/trainer) with the worker
// daemon's socket, the other ranks and the terminal.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/collective/activity.h"
#include "kernels/device/step_state.h"
#include "train/config/trainer_config.h"
#include "train/trainer/trainer.h"
#include "worker/channel/patience.h"
#include "worker/trainer/rank_device.h"

namespace trainyard {

struct RankProcessOptions {
  std::function<bool()> stop_requested;  // By a signal.
  // As in TrainerCallbacks, and the next two.
  OpenLineEncoding open_lines = nullptr;
  OpenPrompts open_prompts = nullptr;
  std::function<void(int64_t step, int attempt, StepState&)> before_attempt = nullptr;
  // The present operations of the rank's groups. The caller can log them after a DeviceError
  // (flight_log.h).
  std::shared_ptr<GroupActivity> activity = std::make_shared<GroupActivity>();
  // How long a rank continues without a daemon, before it saves a checkpoint and stops.
  absl::Duration daemon_patience = channel::kDetach;
};

// Trains to the end. Throws DeviceError. Errors: those of Trainer; DEADLINE_EXCEEDED and
// UNAVAILABLE if the rank cannot meet the other ranks; CANCELLED if a stop came before training
// began.
absl::StatusOr<TrainingResult> RunRankProcess(const TrainerConfig& config, const RankDevice& device,
                                              const RankProcessOptions& options);

}  // namespace trainyard
