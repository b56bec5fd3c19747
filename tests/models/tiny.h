// Tiny models and one way to run them, shared by the tests of models/.

#pragma once

#include <memory>
#include <vector>

#include "common/check.h"
#include "common/rng.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "models/program/executable.h"

namespace trainyard::testing {

// Grouped queries (two query heads share a key/value head); heads * head_dim differs from hidden.
inline ModelConfig TinyLlama(bool tied = false) {
  ModelConfig config = FindFamily("llama")->defaults;
  config.layers = 2;
  config.hidden = 12;
  config.ffn = 20;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.vocab = 13;
  config.max_seq = 16;
  config.tied = tied;
  return config;
}

inline ModelConfig TinyGpt3() {
  ModelConfig config = FindFamily("gpt3")->defaults;
  config.layers = 2;
  config.hidden = 12;
  config.ffn = 48;
  config.heads = config.kv_heads = 3;
  config.head_dim = 4;
  config.vocab = 13;
  config.max_seq = 16;
  return config;
}

// Two of six experts for each token; as many key/value heads as TinyLlama.
inline ModelConfig TinyMoe() {
  ModelConfig config = FindFamily("qwen3_moe")->defaults;
  config.layers = 2;
  config.hidden = 12;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.vocab = 13;
  config.max_seq = 16;
  config.moe = MoeConfig{.experts = 6, .top_k = 2, .expert_ffn = 5, .aux_loss = 0.05};
  return config;
}

inline std::vector<int32_t> Tokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(int32_t(RandomBits(seed, 0, uint64_t(i)) % uint64_t(vocab)));
  }
  return tokens;
}

// Bound on the CPU, parameters initialised from `seed`.
inline std::unique_ptr<Executable> Bind(Program program, uint64_t seed = 1, int slots = 1,
                                        const CollectiveTable& collectives = {}) {
  const MemoryPlan plan = PlanMemory(program, {.slots = {slots}});
  auto executable = Executable::Create(std::move(program), plan, CpuBackend(), 1, collectives);
  CHECK(executable.ok()) << executable.status();
  (*executable)->WriteStepState({.seed = seed});
  (*executable)->Run(Action::kInit);
  (*executable)->Run(Action::kPrepare);
  return *std::move(executable);
}

// The elements of a flat buffer, as doubles.
inline std::vector<double> ReadFlat(const Executable& executable, FlatBuffer buffer,
                                    const FlatRange& range) {
  const Tensor tensor = executable.flat(buffer, range);
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    values.push_back(DispatchFloat(tensor.dtype, [&](auto scalar) {
      using T = decltype(scalar);
      return double(Accumulate<T>(tensor.as<T>()[i]));
    }));
  }
  return values;
}

}  // namespace trainyard::testing
