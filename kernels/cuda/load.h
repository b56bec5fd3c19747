// Loads the CUDA backend for programs that are not linked with it. libtrainyard_cuda.so, in ../lib
// beside the program's directory, is loaded at the first call.

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

// FAILED_PRECONDITION: there is no usable GPU. The message has the reason: built without CUDA, a
// missing NVIDIA library, no driver, no device, one of another kind, or not the one with `uuid`
// (CudaBackend).
absl::StatusOr<CudaLibrary> LoadCuda(const std::string& uuid = "");

}  // namespace trainyard
