// Functions that exist twice, for AVX2 (how all of kernels/cpu is compiled) and for AVX-512. The
// bodies are templates or inline functions that both inline.

#pragma once

#define TRAINYARD_AVX512 \
  [[gnu::target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")]]

namespace trainyard::cpu {

inline bool HasAvx512() {
  return __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw");
}

}  // namespace trainyard::cpu
