// Ranks that are processes, each with its own GPU, connected by NCCL. Compiled if the CUDA toolkit
// and NCCL are found. It has only run on an emulation of NCCL (tests/testing/cuda_emulation): no
// machine with two GPUs was available.
//
// Tensors are in device memory. A group must follow an Exec before its first operation. Operations
// are ordered on the device, on a stream of high priority: each runs after the work that the Exec
// was given before, and before the work that it is given later. The host continues at once; only
// Barrier waits for the other ranks. Members that disagree about a group never meet: UNAVAILABLE at
// the deadline. Sums are taken in NCCL's order. They have the same bits for the same ranks and
// machines, but not those of the other implementations.
//
// Each group is a communicator. Each ordered pair of ranks that exchanges messages also is one,
// served by a thread of the sender, so that no message waits behind another pair's. Communicators
// are non-blocking.
//
// NCCL allocates memory on the device when it makes a communicator, and when two ranks of one make
// their first calls of a kind to each other. An allocation may wait until the device has finished
// its work. If that work waits for another rank, and that rank waits for this one to connect, none
// of them ever continues. So groups are made, and then connected (Collective::Connect), while no
// group of the world is in use. A message between ranks that are not connected is a programmer's
// error. Connect makes the first collective of a group, and the first message along each pair, of
// one byte each. NCCL may still connect ranks once more for an algorithm that it takes only for
// larger collectives.
//
// A watchdog, a thread of the world, looks at all operations under way: for an abort, an
// operation's deadline and NCCL's own errors. It notes a failure first and then ends the work on
// the device, so that Check() throws before anybody trusts the result. If a peer dies, NCCL notices
// (connections between machines), or the deadline passes.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/collective/rendezvous.h"
#include "kernels/collective/world.h"

namespace trainyard {

struct NcclOptions {
  int rank = 0;
  int size = 1;
  int device = 0;  // CUDA's number of the device.
  // Until all ranks of a group have come, and until both ranks of a pair have.
  absl::Duration connect_timeout = absl::Minutes(2);
  // For one operation, from the moment when this rank's device has reached it. Includes the wait
  // for the slowest rank.
  absl::Duration timeout = absl::Minutes(5);
  // Returns the text of an error of the device, and behind it the message of the kernel that has
  // failed (kernels/cuda/failure_text.h). Null: errors have no such message.
  std::string (*with_failure)(const std::string& error) = nullptr;
};

// Returns the world of this rank. `rendezvous` must outlive the world. It is used by the thread
// that makes and connects groups. Groups meet when they are made; the world itself needs no peer.
std::unique_ptr<CollectiveWorld> CreateNcclWorld(const NcclOptions& options,
                                                 Rendezvous& rendezvous);

}  // namespace trainyard
