// Ranks that are processes, each with its own GPU, connected by NCCL. Compiled if the CUDA toolkit
// and NCCL are found. It has only run on an emulation of NCCL (tests/testing/cuda_emulation): no
// machine with two GPUs was available.
//
// Tensors are in device memory. A group must follow an Exec before its first operation. Operations
// are ordered on the device, on a stream of high priority: each runs after the work that the Exec
// was given before, and before the work that it is given later. The host continues at once; only
// the first operations, which connect, and Barrier wait for the other ranks. Members that disagree
// about a group never meet: UNAVAILABLE at the deadline. Sums are taken in NCCL's order. They have
// the same bits for the same ranks and machines, but not those of the other implementations.
//
// Each group is a communicator. Each ordered pair of ranks that exchanges messages also is one,
// served by a thread of the sender, so that no message waits behind another pair's. Communicators
// are non-blocking. A watchdog, a thread of the world, looks at all operations under way: for an
// abort, an operation's deadline and NCCL's own errors. It notes a failure first and then ends the
// work on the device, so that Check() throws before anybody trusts the result. If a peer dies, NCCL
// notices (connections between machines), or the deadline passes.

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
  int device = 0;                                     // CUDA's number of the device.
  absl::Duration connect_timeout = absl::Minutes(2);  // Until all ranks of a group have come.
  // For one operation, from the moment when this rank's device has reached it. Includes the wait
  // for the slowest rank.
  absl::Duration timeout = absl::Minutes(5);
};

// Returns the world of this rank. `rendezvous` must outlive the world. It is used from several
// threads, at the first use of each group and pair. Groups meet when they are made; the world
// itself needs no peer.
std::unique_ptr<CollectiveWorld> CreateNcclWorld(const NcclOptions& options,
                                                 Rendezvous& rendezvous);

}  // namespace trainyard
