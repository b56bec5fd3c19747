// Functions that are compiled twice: for AVX2, like all of kernels/cpu, and for AVX-512. Both
// inline the same bodies, which are templates or inline functions.

#pragma once

#define TRAINYARD_AVX512 \
  [[gnu::target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")]]

namespace trainyard::cpu {

inline bool HasAvx512() {
  return __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw");
}

}  // namespace trainyard::cpu
