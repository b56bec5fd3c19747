// The ranks of this machine that hold a model together to generate or to evaluate
// (train/generate/tensor_gang.h). Rank 0 is the process that the user has started. It starts the
// others.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/generate/tensor_gang.h"
#include "worker/trainer/follower_processes.h"
#include "worker/trainer/peers.h"
#include "worker/trainer/rank_device.h"

namespace trainyard {

struct MachineRanks {
  int size = 1;
  std::string device = "cpu";  // As in DeviceNamed.
  int threads = 1;             // Of all ranks on a CPU together.
  // CUDA_VISIBLE_DEVICES of this process. On rank 0 the GPUs of all ranks, one each; absent: the
  // first ones of the machine. On other ranks the rank's own.
  std::optional<std::string> gpus = {};
  std::string device_files = "/dev";  // Where the GPUs of this machine have files.
};

// This process as one of the ranks. Later members use earlier ones.
struct MachineRank {
  RankDevice device;
  int threads = 1;
  Peers peers;
  std::unique_ptr<TensorGang> gang;
};

// Returns the GPU of each rank, as CUDA_VISIBLE_DEVICES names it. Ranks share a GPU that is named
// several times. INVALID_ARGUMENT: there are fewer GPUs than ranks, as far as the driver's files
// show.
absl::StatusOr<std::vector<std::string>> GpusOf(const MachineRanks& ranks);

// Starts the other ranks as `followers`, and meets them. Must be called on the main thread. Errors:
// those of GpusOf, DeviceNamed, FollowerProcesses::Start and Meet. UNAVAILABLE: a rank has ended;
// the message says how. May throw DeviceError; followers->Ended() then says which rank was lost.
absl::StatusOr<MachineRank> LeadRanks(const MachineRanks& ranks,
                                      std::unique_ptr<FollowerProcesses>& followers);

// Ends the work of the ranks, and waits for the followers.
void EndRanks(MachineRank rank, FollowerProcesses& followers);

// What this program does as another rank, whose arguments come from LeadRanks: "--follow RANK
// --rendezvous DIRECTORY --tensor SIZE --device NAME --threads N". Returns when rank 0 has ended
// the work. Errors: those of DeviceNamed and Meet. May throw DeviceError.
absl::Status FollowAsRank(int rank, const std::string& directory, const MachineRanks& ranks);

}  // namespace trainyard
