# What the CUDA backend consists of, and tests/testing/cuda_emulation runs on the CPU.
set(TRAINYARD_CUDA_SOURCES
  adamw.cu
  add.cu
  add_bias.cu
  backend.cu
  cast.cu
  clip.cu
  column_sum.cu
  context.cu
  copy_columns.cu
  cross_entropy.cu
  embedding.cu
  fill.cu
  gelu.cu
  head_norm.cu
  layer_norm.cu
  matmul_adapter.cc
  matmul_bias.cu
  positions.cu
  random_normal.cu
  rms_norm.cu
  rope.cu
  scaled_swiglu.cu
  sum_slices.cu
  sum_squares.cu
  swiglu.cu)
list(TRANSFORM TRAINYARD_CUDA_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/kernels/cuda/)
