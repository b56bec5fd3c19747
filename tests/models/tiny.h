// Tiny models and one way to run them, shared by the tests of models/.

#pragma once

#include <memory>
#include <vector>

#include "common/check.h"
#include "common/rng.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "models/program/executable.h"
#include "tests/families/decoder.h"

namespace trainyard::testing {

inline ModelConfig TinyLlama(bool tied = false) { return TinyAs("llama", tied); }
inline ModelConfig TinyGpt3() { return TinyOf("gpt3"); }
inline ModelConfig TinyMoe() { return TinyOf("qwen3_moe"); }

inline std::vector<int32_t> Tokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(int32_t(RandomBits(seed, 0, uint64_t(i)) % uint64_t(vocab)));
  }
  return tokens;
}

// What a model may read as `input`, of some samples of `sequence` tokens.
inline InputData MakeInput(const InputSpec& input, int64_t samples, int64_t sequence,
                           uint64_t seed) {
  const bool by_token = input.unit == InputSpec::Unit::kToken;
  const int64_t count = samples * (by_token ? sequence : 1) * input.shape.elements();
  if (input.kind == InputSpec::Kind::kInteger) return Tokens(count, input.limit, seed);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float(trainyard::Normal(seed, 0, uint64_t(i))));
  return values;
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
