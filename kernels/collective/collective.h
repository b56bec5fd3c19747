// Communication among the ranks of one group. Every rank calls the same operations in the same
// order.
//
// Implementations: local (threads of one process, for tests), gloo (processes over TCP), later
// nccl. Sums are taken in rank order, so results are deterministic. A broken connection, a passed
// deadline or Abort() throws DeviceError, which trainer_main alone catches: a rank that lost a peer
// cannot go on. Not thread-safe: one thread a communicator.

#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

#include "kernels/device/tensor.h"

namespace trainyard {

// The one exception type: a device or a communicator failed, and this process ends.
class DeviceError : public std::runtime_error {
 public:
  enum class Kind { kDevice, kPeerLost };
  DeviceError(Kind kind, const std::string& what) : std::runtime_error(what), kind(kind) {}
  Kind kind;
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place; f64, f32, bf16 (summed in f32), i64. Every rank ends with the same bits.
  virtual void AllReduceSum(Tensor data) = 0;
  // In place, i64 and f64 only: for flags and slowest-rank times.
  virtual void AllReduceMax(Tensor data) = 0;
  virtual void Broadcast(Tensor data, int root) = 0;
  virtual void Barrier() = 0;

  // From any thread: makes a running and every later operation of this rank throw, and its peers
  // notice.
  virtual void Abort() = 0;
};

}  // namespace trainyard
