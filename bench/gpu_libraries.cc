// Which of NVIDIA's libraries the programs find here, beside those that they were built with:
//
//   library cudnn built 91900 found 91300
//
// No GPU is needed. The driver's line has what it supports, 0 where there is none.

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn_version.h>
#include <nccl.h>

#include <iostream>

#include "bench/exit_status.h"

extern "C" size_t cudnnGetVersion();

namespace {

void Print(const char* library, int64_t built, int64_t found) {
  std::cout << "library " << library << " built " << built << " found " << found << '\n';
}

}  // namespace

int main() {
  int runtime = 0, driver = 0, nccl = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess) nccl = 0;
  Print("driver", CUDART_VERSION, driver);
  Print("cudart", CUDART_VERSION, runtime);
  Print("cublaslt", CUBLAS_VERSION, int64_t(cublasLtGetVersion()));
  Print("cudnn", CUDNN_VERSION, int64_t(cudnnGetVersion()));
  Print("nccl", NCCL_VERSION_CODE, nccl);
  return trainyard::bench::ExitStatus(absl::OkStatus());
}
