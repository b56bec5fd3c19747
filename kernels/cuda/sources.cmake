# What the CUDA backend consists of, and tests/testing/cuda_emulation runs on the CPU.
set(TRAINYARD_CUDA_SOURCES
  adamw.cu
  add.cu
  add_bias.cu
  backend.cu
  clip.cu
  column_sum.cu
  context.cu
  matmul_adapter.cc
  matmul_bias.cu
  sum_slices.cu
  sum_squares.cu)
list(TRANSFORM TRAINYARD_CUDA_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/kernels/cuda/)
