# The .cu files that CUDA compiles, and that tests/testing/cuda_emulation runs on the CPU.
set(TRAINYARD_CUDA_SOURCES
  add.cu
  backend.cu
  context.cu)
list(TRANSFORM TRAINYARD_CUDA_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/kernels/cuda/)
