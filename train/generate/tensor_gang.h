// The ranks that hold a model together to compute with it, each a part of its tensors (tensor
// parallelism). Rank 0 leads: it alone has the texts, and says what all ranks do next. The others
// follow (model_part.h has what they do).

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collective/world.h"
#include "models/arch/config.h"
#include "models/program/executable.h"
#include "models/program/program.h"

namespace trainyard {

// The most ranks of a machine that hold a model together.
inline constexpr int kMostTensorRanks = 64;

// Not thread-safe. May throw DeviceError: a rank was lost.
class TensorGang {
 public:
  // All ranks of the world must call this. `world` must outlive the gang. Errors: those of
  // CollectiveWorld::Everyone.
  static absl::StatusOr<std::unique_ptr<TensorGang>> Create(CollectiveWorld& world);

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  bool leads() const { return rank() == 0; }
  Collective& everyone() { return *everyone_; }

  // Returns the communicators of a program whose mesh has these ranks. They live as long as the
  // gang. All ranks must call this with programs of the same groups. Errors: those of
  // CollectiveWorld::Group and Collective::Connect.
  absl::StatusOr<CollectiveTable> Join(const Program& program);

  enum class Order : int64_t {
    kLoad,        // A part of a checkpoint's model.
    kRun,         // A whole window.
    kReplay,      // The next tokens of texts.
    kReadLogits,  // Some rows of the last run or replay.
    kEnd,
  };
  struct Told {
    Order order = Order::kEnd;
    std::vector<int64_t> numbers;
  };
  // On rank 0: says what all ranks do next.
  void Tell(Order order, std::span<const int64_t> numbers);
  // On the other ranks: waits until rank 0 says it.
  Told Hear();

 private:
  explicit TensorGang(CollectiveWorld& world) : world_(world) {}
  void Share(std::span<int64_t> numbers);  // Those of rank 0.

  CollectiveWorld& world_;
  std::unique_ptr<Collective> everyone_;
  std::map<Group, std::unique_ptr<Collective>> groups_;
};

}  // namespace trainyard
