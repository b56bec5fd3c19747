// How the ranks of a gang, which are processes, meet: over Gloo and, if each has a GPU of its own,
// NCCL.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/rank_config.h"
#include "kernels/collective/local.h"
#include "kernels/collective/rendezvous.h"
#include "kernels/collective/world.h"
#include "worker/trainer/rank_device.h"

namespace trainyard {

// The worlds in which the ranks meet. A single rank has none. Later members use earlier ones.
struct Peers {
  std::unique_ptr<LocalWorld> alone;
  std::unique_ptr<Rendezvous> rendezvous;
  std::unique_ptr<CollectiveWorld> gloo;
  std::unique_ptr<CollectiveWorld> of_device;  // Only on a GPU.
  bool nccl = false;                           // Whether tensors go through NCCL.

  CollectiveWorld& host() const { return gloo ? *gloo : alone->world(0); }
  CollectiveWorld& world() const { return of_device ? *of_device : host(); }
};

// Waits until all rank.world ranks have come. `rendezvous` is null for a single rank. Errors: those
// of CreateGlooWorld.
absl::StatusOr<Peers> Meet(const RankConfig& rank, const RankDevice& device,
                           std::unique_ptr<Rendezvous> rendezvous);

}  // namespace trainyard
