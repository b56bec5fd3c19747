// NCCL's ranks, which carry a device's tensors.

#include <cuda_runtime.h>

#include "kernels/collective/nccl.h"
#include "kernels/cuda/cuda.h"
#include "tests/kernels/collective/carried.h"
#include "tests/kernels/collective/worlds.h"

namespace trainyard::testing {
namespace {

class NcclThreads final : public Threads {
 public:
  explicit NcclThreads(int size) {
    for (int i = 0; i < size; ++i) {
      ranks_.push_back(std::make_unique<CarriedWorld>(
          CreateNcclWorld(
              {.rank = i, .size = size, .device = i, .connect_timeout = absl::Seconds(5)},
              rendezvous_),
          **CudaBackend()));
    }
  }
  std::vector<CollectiveWorld*> worlds() const override { return WorldsOf(ranks_); }

 private:
  MemoryRendezvous rendezvous_;
  std::vector<std::unique_ptr<CollectiveWorld>> ranks_;
};

}  // namespace

std::vector<Kind> TestedKinds() { return {Kind::kNccl}; }

std::vector<KindAndSize> TestedWorlds() {
#ifdef TRAINYARD_CUDA_EMULATION
  return {{Kind::kNccl, 1}, {Kind::kNccl, 2}, {Kind::kNccl, 3}};
#else
  return {{Kind::kNccl, 1}};  // NCCL wants a GPU for each.
#endif
}

std::unique_ptr<Threads> NewThreads(Kind, int size) { return std::make_unique<NcclThreads>(size); }

}  // namespace trainyard::testing
