#include "worker/trainer/peers.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "kernels/collective/gloo.h"
#include "kernels/collective/staged.h"
#include "train/step/agree.h"
#include "worker/channel/patience.h"

namespace trainyard {
namespace {

// Ranks of two releases meet only if they call the same collectives in the same order, and would
// wait for each other otherwise. A release that changes the calls changes the number.
constexpr char kWorldName[] = "gloo-3";

channel::Patience PatienceOf(const RankConfig& rank) {
  return rank.patience_seconds ? channel::Patience(absl::Seconds(*rank.patience_seconds))
                               : channel::Patience();
}

// Whether each rank has its own GPU, which NCCL requires.
absl::StatusOr<bool> HasGpuOfItsOwn(const RankConfig& rank, CollectiveWorld& host) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Collective> everyone, host.Everyone());
  std::vector<std::string> gpus = GatherText(*everyone, rank.device_uuid, 0);
  std::sort(gpus.begin(), gpus.end());
  const bool distinct = std::adjacent_find(gpus.begin(), gpus.end()) == gpus.end();
  return BroadcastText(*everyone, distinct ? "distinct" : "", 0) == "distinct";
}

// Returns the world for tensors on GPUs. It uses NCCL, or the host if ranks share a GPU.
absl::StatusOr<std::unique_ptr<CollectiveWorld>> WorldOfGpu(const RankConfig& rank,
                                                            const RankDevice& device,
                                                            Peers& peers) {
  if (rank.world > 1) {
    ASSIGN_OR_RETURN(const bool own, HasGpuOfItsOwn(rank, *peers.gloo));
    if (own && device.create_nccl_world != nullptr) {
      peers.nccl = true;
      return CreateDeviceWorld(*peers.gloo,
                               device.create_nccl_world({.rank = int(rank.rank),
                                                         .size = int(rank.world),
                                                         .timeout = PatienceOf(rank).ForPeers()},
                                                        *peers.rendezvous));
    }
  }
  return CreateStagedWorld(peers.host(), *device.backend);
}

}  // namespace

absl::StatusOr<Peers> Meet(const RankConfig& rank, const RankDevice& device,
                           std::unique_ptr<Rendezvous> rendezvous) {
  Peers peers;
  const bool gpu = device.backend->device() == DeviceKind::kCuda;
  if (rank.world == 1) {
    peers.alone = std::make_unique<LocalWorld>(1);
    if (gpu) {
      ASSIGN_OR_RETURN(peers.of_device, WorldOfGpu(rank, device, peers));
    }
    return peers;
  }
  peers.rendezvous = std::move(rendezvous);
  ASSIGN_OR_RETURN(peers.gloo, CreateGlooWorld({.rank = int(rank.rank),
                                                .size = int(rank.world),
                                                .interface = rank.interface,
                                                .name = kWorldName,
                                                .timeout = PatienceOf(rank).ForPeers()},
                                               *peers.rendezvous));
  if (gpu) {
    ASSIGN_OR_RETURN(peers.of_device, WorldOfGpu(rank, device, peers));
  }
  return peers;
}

}  // namespace trainyard
