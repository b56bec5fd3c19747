// Ranks that are processes, each with a GPU of its own, connected by NCCL. Compiled where the CUDA
// toolkit and NCCL are found. It has run on an emulation of NCCL alone
// (tests/testing/cuda_emulation): no machine with two GPUs was at hand.
//
// Tensors are device memory. A group follows an Exec before its first operation, and its operations
// are ordered on the device: each comes after what that Exec has been given by then, and before
// what it is given later, on a stream of high priority. The host goes on at once; only the first
// operations, which connect, and Barrier wait for the other ranks. Members that disagree about a
// group never meet: UNAVAILABLE at the deadline. Sums are taken in NCCL's order: the same bits for
// the same ranks and machines, not those of the other implementations.
//
// A group is a communicator, and so is each ordered pair of ranks that exchanges messages, given
// by a thread of the sender, so that no message waits behind another pair's. They are non-blocking,
// and a watchdog, a thread of the world, looks at all that is under way: an abort, an operation's
// deadline and NCCL's own errors. It notes what failed, and then ends what is on the device, so
// that Check() throws before anybody trusts what that left behind. A peer that dies is noticed
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
  // Of one operation, slowest rank included, from when this rank's device has come to it.
  absl::Duration timeout = absl::Minutes(5);
};

// `rendezvous` must outlive the world, is used from several threads, and serves each group and pair
// at first use. Groups meet when they are made; the world itself needs no peer.
std::unique_ptr<CollectiveWorld> CreateNcclWorld(const NcclOptions& options,
                                                 Rendezvous& rendezvous);

}  // namespace trainyard
