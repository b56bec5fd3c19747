# The .cu files that CUDA compiles, and that tests/testing/cuda_emulation runs on the CPU.
set(TRAINYARD_CUDA_SOURCES
  adamw.cu
  add.cu
  add_bias.cu
  backend.cu
  clip.cu
  column_sum.cu
  context.cu
  sum_slices.cu
  sum_squares.cu)
list(TRANSFORM TRAINYARD_CUDA_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/kernels/cuda/)
