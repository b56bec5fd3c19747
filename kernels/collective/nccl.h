// Ranks that are processes, each with a GPU of its own, connected by NCCL. Compiled where the CUDA
// toolkit and NCCL are found. It has not run yet: no machine with two GPUs was at hand.
//
// Tensors are device memory, complete when an operation is called; it returns when the device has
// done it, as all implementations do. Sums are taken in NCCL's order: the same bits for the same
// ranks and machines, not those of the other implementations.
//
// A group is a communicator, and so is each ordered pair of ranks that exchanges messages, on a
// thread of the sender, so that no message waits behind another pair's. They are non-blocking:
// what waits looks at the abort, the deadline and NCCL's own errors. A peer that dies is noticed
// where NCCL notices (connections between machines), else at the deadline.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/collective/rendezvous.h"
#include "kernels/collective/world.h"

namespace trainyard {

struct NcclOptions {
  int rank = 0;
  int size = 1;
  int device = 0;                                     // CUDA's number.
  absl::Duration connect_timeout = absl::Minutes(2);  // Until all ranks of a group have come.
  absl::Duration timeout = absl::Minutes(5);          // Of one operation, slowest rank included.
};

// `rendezvous` must outlive the world, is used from several threads, and serves each group and pair
// at first use. Groups meet when they are made; the world itself needs no peer.
std::unique_ptr<CollectiveWorld> CreateNcclWorld(const NcclOptions& options,
                                                 Rendezvous& rendezvous);

}  // namespace trainyard
