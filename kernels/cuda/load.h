// The CUDA backend, for programs that are not linked with it: libtrainyard_cuda.so, which lies in
// ../lib beside their directory, is loaded when it is asked for.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/collective/nccl.h"
#include "kernels/device/backend.h"

namespace trainyard {

struct CudaLibrary {
  const Backend* backend = nullptr;
  std::unique_ptr<CollectiveWorld> (*create_nccl_world)(const NcclOptions&, Rendezvous&) = nullptr;
};

// FAILED_PRECONDITION, with the reason, where there is no GPU to use: built without CUDA, a library
// of NVIDIA's is missing, no driver, no device, one of another kind, or not the one with `uuid`
// (CudaBackend).
absl::StatusOr<CudaLibrary> LoadCuda(const std::string& uuid = "");

}  // namespace trainyard
