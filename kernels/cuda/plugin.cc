// libtrainyard_cuda.so: the code that needs NVIDIA's libraries. Programs load it if there is a GPU
// to use (load.h), so they also start on machines without these libraries.

#include "kernels/collective/nccl.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/failure_text.h"

namespace trainyard {

extern "C" absl::StatusOr<const Backend*> TrainyardCudaBackend(const std::string& uuid) {
  return CudaBackend(uuid);
}

extern "C" std::unique_ptr<CollectiveWorld> TrainyardNcclWorld(const NcclOptions& options,
                                                               Rendezvous& rendezvous) {
  NcclOptions with_messages = options;
  with_messages.with_failure = cuda::WithFailure;
  return CreateNcclWorld(with_messages, rendezvous);
}

}  // namespace trainyard
