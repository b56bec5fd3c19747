# What the CUDA backend consists of, and tests/testing/cuda_emulation runs on the CPU.
set(here ${CMAKE_SOURCE_DIR}/kernels/cuda)
file(GLOB TRAINYARD_CUDA_SOURCES CONFIGURE_DEPENDS ${here}/*.cu ${here}/*/*.cu)
list(APPEND TRAINYARD_CUDA_SOURCES ${here}/products/cublaslt_product.cc ${here}/products/matmul_adapter.cc
  ${here}/products/scaled_matmul_adapter.cc)
