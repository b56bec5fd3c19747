// Tiny models and one way to run them, shared by the tests of models/.

#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "common/check.h"
#include "common/rng.h"
#include "models/arch/decoder_config.h"
#include "models/arch/deepseek_v3.h"
#include "models/arch/dit.h"
#include "models/arch/gemma3.h"
#include "models/arch/gpt_oss.h"
#include "models/arch/nemotron.h"
#include "models/arch/nemotron_h.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "models/program/executable.h"

namespace trainyard::testing {

// What the structs of the families of decoders have in common.
inline DecoderConfig& AsDecoder(ModelConfig& config) {
  if (config.family() == "gpt_oss") return config.As<GptOssConfig>();
  if (config.family() == "gemma3") return config.As<Gemma3Config>();
  if (config.family() == "nemotron") return config.As<NemotronConfig>();
  if (config.family() == "nemotron_h") return config.As<NemotronHConfig>();
  if (config.family() == "deepseek_v3") return config.As<DeepseekV3Config>();
  return config.As<DecoderConfig>();
}
inline const DecoderConfig& AsDecoder(const ModelConfig& config) {
  return AsDecoder(const_cast<ModelConfig&>(config));
}
// Null: it is no decoder.
inline const DecoderConfig* FindDecoder(const ModelConfig& config) {
  return config.family() == "dit" ? nullptr : &AsDecoder(config);
}

inline bool HasField(const ModelConfig& config, absl::string_view name) {
  const std::vector<Field> fields = FieldsOf(config);
  return std::any_of(fields.begin(), fields.end(),
                     [&](const Field& field) { return field.rule.name == name; });
}

// Two layers of 4 dims a head.
inline ModelConfig Tiny(absl::string_view family, int64_t heads, int64_t kv_heads) {
  ModelConfig config = FindFamily(family)->defaults;
  DecoderConfig& c = AsDecoder(config);
  c.layers = 2;
  c.hidden = 12;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = 4;
  c.vocab = 13;
  c.max_seq = 16;
  return config;
}

// A family that has the fields of Llama.
inline ModelConfig TinyAs(absl::string_view family, bool tied = false) {
  ModelConfig config = Tiny(family, 4, 2);
  AsDecoder(config).ffn = 20;
  AsDecoder(config).tied = tied;
  return config;
}

// Grouped queries (two query heads share a key/value head); heads * head_dim differs from hidden.
inline ModelConfig TinyLlama(bool tied = false) { return TinyAs("llama", tied); }

inline ModelConfig TinyGpt3() {
  ModelConfig config = Tiny("gpt3", 3, 3);
  AsDecoder(config).ffn = 48;
  return config;
}

// Two of six experts for each token; as many key/value heads as TinyLlama.
inline ModelConfig TinyMoe() {
  ModelConfig config = Tiny("qwen3_moe", 4, 2);
  AsDecoder(config).moe = MoeConfig{.experts = 6, .top_k = 2, .expert_ffn = 5, .aux_loss = 0.05};
  return config;
}

// A window in the first of the two layers.
inline ModelConfig TinyGemma3(bool tied = true) {
  ModelConfig config = TinyAs("gemma3", tied);
  Gemma3Config& c = config.As<Gemma3Config>();
  c.global_every = 2;
  c.window = 3;
  c.rope_base = 1000;
  c.local_rope_base = 100;
  c.rope_factor = 4;
  c.query_pre_attn_scalar = 6;
  return config;
}

// As TinyMoe, of a family whose router has no other forms.
inline ModelConfig TinyMixtral() {
  ModelConfig config = Tiny("mixtral", 4, 2);
  AsDecoder(config).moe = AsDecoder(TinyMoe()).moe;
  return config;
}

// As TinyMoe, with a window in the first of the two layers. No unit is near its limit: beyond that,
// gradients jump.
inline ModelConfig TinyGptOss() {
  ModelConfig config = Tiny("gpt_oss", 4, 2);
  AsDecoder(config).moe = MoeConfig{.experts = 6, .top_k = 2, .expert_ffn = 5, .aux_loss = 0.05};
  GptOssConfig& c = config.As<GptOssConfig>();
  c.window = 3;
  c.rope_base = 100;
  c.yarn_original_max_seq = 16;
  c.yarn_beta_fast = 2;
  c.yarn_beta_slow = 0.25;
  return config;
}

// A dense layer, and then three of the experts of the best two of three groups. All widths of a
// head differ.
inline ModelConfig TinyDeepseekV3() {
  ModelConfig config = Tiny("deepseek_v3", 3, 3);
  DeepseekV3Config& c = config.As<DeepseekV3Config>();
  c.dense_layers = 1;
  c.ffn = 20;
  c.q_lora_rank = 7;
  c.kv_lora_rank = 5;
  c.qk_nope_head_dim = 3;
  c.qk_rope_head_dim = 4;
  c.v_head_dim = 5;
  c.rope_base = 100;
  c.yarn_factor = 4;
  c.yarn_beta_fast = 2;
  c.yarn_original_max_seq = 16;
  c.moe = MoeConfig{.experts = 6,
                    .top_k = 3,
                    .expert_ffn = 5,
                    .shared_experts = 1,
                    .shared_ffn = 5,
                    .router = RouterScoring::kSigmoid,
                    .expert_bias = true,
                    .groups = 3,
                    .topk_groups = 2,
                    .routed_scaling = 2.5};
  return config;
}

// A layer of each kind. The experts read narrower vectors; some of Mamba's steps are clamped. The
// widths are such that no unit is near 0, where the second derivative of a squared ReLU jumps.
inline ModelConfig TinyNemotronH() {
  ModelConfig config = Tiny("nemotron_h", 4, 2);
  NemotronHConfig& c = config.As<NemotronHConfig>();
  c.hybrid_pattern = "ME*-";
  c.layers = 4;
  c.ffn = 20;
  c.mamba_heads = 4;
  c.mamba_head_dim = 3;
  c.mamba_groups = 2;
  c.mamba_state = 5;
  c.mamba_taps = 3;
  c.mamba_min_step = 0.6;
  c.moe = MoeConfig{.experts = 6,
                    .top_k = 3,
                    .expert_ffn = 6,
                    .latent = 7,
                    .shared_experts = 1,
                    .shared_ffn = 4,
                    .router = RouterScoring::kSigmoid,
                    .expert_bias = true,
                    .groups = 3,
                    .topk_groups = 2,
                    .routed_scaling = 2.5};
  return config;
}

// Its heads together are narrower than the model. A sample has 9 tokens, each of 3 channels of
// 2 x 2 places.
inline ModelConfig TinyDit() {
  return ModelConfig("dit", DitConfig{.layers = 2,
                                      .hidden = 16,
                                      .ffn = 20,
                                      .heads = 3,
                                      .head_dim = 4,
                                      .in_channels = 3,
                                      .sample_size = 6,
                                      .patch_size = 2,
                                      .num_classes = 4,
                                      .num_timesteps = 30});
}

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
  for (int64_t i = 0; i < count; ++i) values.push_back(float(Normal(seed, 0, uint64_t(i))));
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
