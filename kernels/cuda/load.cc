#include "kernels/cuda/load.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr char kLibrary[] = "libtrainyard_cuda.so";

template <typename Function>
absl::StatusOr<Function*> Find(void* library, const char* name) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(kLibrary, ": no ", name, ": another build's"));
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace

absl::StatusOr<CudaLibrary> LoadCuda(const std::string& uuid) {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // Never closed.
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("no CUDA: ", ::dlerror()));
  }
  CudaLibrary loaded;
  ASSIGN_OR_RETURN(auto* const backend, Find<absl::StatusOr<const Backend*>(const std::string&)>(
                                            library, "TrainyardCudaBackend"));
  ASSIGN_OR_RETURN(loaded.backend, backend(uuid));
  ASSIGN_OR_RETURN(loaded.create_nccl_world,
                   (Find<std::unique_ptr<CollectiveWorld>(const NcclOptions&, Rendezvous&)>(
                       library, "TrainyardNcclWorld")));
  return loaded;
}

}  // namespace trainyard
