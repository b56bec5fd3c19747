// libtrainyard_cuda.so: everything that needs NVIDIA's libraries, loaded by those who have a GPU to
// use (load.h), so that the programs start on machines without them.

#include "kernels/collective/nccl.h"
#include "kernels/cuda/cuda.h"

namespace trainyard {

extern "C" absl::StatusOr<const Backend*> TrainyardCudaBackend(const std::string& uuid) {
  return CudaBackend(uuid);
}

extern "C" std::unique_ptr<CollectiveWorld> TrainyardNcclWorld(const NcclOptions& options,
                                                               Rendezvous& rendezvous) {
  return CreateNcclWorld(options, rendezvous);
}

}  // namespace trainyard
