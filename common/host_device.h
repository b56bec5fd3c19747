// Marks functions that run on the CPU and, in files that nvcc compiles, on the GPU.

#pragma once

#ifdef __CUDACC__
#define TRAINYARD_HOST_DEVICE __host__ __device__
#else
#define TRAINYARD_HOST_DEVICE
#endif
