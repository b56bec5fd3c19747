// Proves that the keys of public directories are read as `transformers` means them, or refused by
// one true error. Each row has a public model's name, and those keys of its config.json, with their
// values, that differ from the ones that an export of the family writes; sizes are left out.
#include <nlohmann/json.hpp>
#include <set>

#include "gmock/gmock.h"
#include "models/hf/config.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

struct Public {
  const char* model;
  const char* preset;   // Of the family.
  const char* keys;     // JSON.
  const char* changes;  // Fields that differ from the preset's, JSON; null: refused.
  const char* refusal = nullptr;
};

constexpr char kLlama3Scaling[] =
    R"({"rope_scaling.factor": 8.0, "rope_scaling.low_freq_factor": 1.0,
        "rope_scaling.high_freq_factor": 4.0, "rope_scaling.original_max_seq": 8192})";
constexpr char kLinear4[] = R"({"rope_scaling.factor": 4.0, "rope_scaling.original_max_seq": 1})";
constexpr char kNone[] = "{}";
constexpr char kNoLoss[] = R"({"moe.aux_loss": 0.0})";

const Public kPublic[] = {
    // Llama and what has its form.
    {"huggyllama/llama-7b", "llama2-7b",
     R"({"max_sequence_length": 2048, "pad_token_id": 0, "torch_dtype": "float16"})", kNone},
    {"decapoda-research/llama-7b-hf", "llama2-7b",
     R"({"architectures": ["LLaMAForCausalLM"], "max_sequence_length": 2048, "pad_token_id": -1})",
     nullptr, "architectures: wanted [\"LlamaForCausalLM\"], found [\"LLaMAForCausalLM\"]"},
    {"meta-llama/Llama-2-7b-hf", "llama2-7b",
     R"({"_name_or_path": "meta-llama/Llama-2-7b-hf", "pretraining_tp": 1, "rope_scaling": null})",
     kNone},
    {"NousResearch/Llama-2-70b-hf", "llama2-70b", R"({"pretraining_tp": 1, "pad_token_id": 0})",
     kNone},
    {"codellama/CodeLlama-7b-hf", "llama2-7b", R"({"rope_theta": 1000000, "rope_scaling": null})",
     R"({"rope_base": 1e6})"},
    {"meta-llama/Meta-Llama-3-8B", "llama3-8b", R"({"rope_scaling": null, "pretraining_tp": 1})",
     kNone},
    {"meta-llama/Llama-3.1-8B-Instruct", "llama3-8b",
     R"({"eos_token_id": [128001, 128008, 128009], "mlp_bias": false, "rope_scaling":
         {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3"}})",
     kLlama3Scaling},
    {"nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama3-70b",
     R"({"_name_or_path": "meta-llama/Llama-3.1-70B", "rope_scaling":
         {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3"}})",
     kLlama3Scaling},
    {"unsloth/Llama-3.2-1B-Instruct", "llama3.2-1b",
     R"({"unsloth_fixed": true, "pad_token_id": 128004})", kNone},
    {"unsloth/Meta-Llama-3.1-8B", "llama3-8b", R"({"unsloth_version": "2024.9", "rope_scaling":
         {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3"}})",
     kLlama3Scaling},
    {"unsloth/phi-4", "llama3-8b",
     R"({"unsloth_fixed": true, "original_max_position_embeddings": 16384, "rope_scaling": null})",
     kNone},
    {"a fine-tune saved by transformers 4.46 to 4.50", "llama3-8b",
     R"({"_attn_implementation_autoset": true})", kNone},
    {"HuggingFaceTB/SmolLM-135M", "llama3.2-1b",
     R"({"rope_interleaved": false, "is_llama_config": true, "rope_scaling": null})",
     R"({"rope_scaling.factor": 0.0})"},
    {"HuggingFaceTB/SmolLM2-1.7B-Instruct", "llama2-7b",
     R"({"is_llama_config": true, "rope_interleaved": false, "transformers.js_config": null})",
     kNone},
    {"HuggingFaceTB/SmolLM3-3B", "llama3-8b", R"({"model_type": "smollm3"})", nullptr,
     "model_type: wanted one of llama, "},
    {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "llama2-7b",
     R"({"attention_bias": false, "pretraining_tp": 1, "rope_scaling": null})", kNone},
    {"openlm-research/open_llama_3b", "llama2-7b",
     R"({"pad_token_id": 0, "rms_norm_eps": 1e-6, "torch_dtype": "float16"})",
     R"({"norm_eps": 1e-6})"},
    {"lmsys/vicuna-7b-v1.5", "llama2-7b",
     R"({"max_length": 4096, "pad_token_id": 0, "pretraining_tp": 1, "rope_scaling": null})",
     kNone},
    {"lmsys/vicuna-7b-v1.5-16k", "llama2-7b",
     R"({"max_sequence_length": 16384, "rope_scaling": {"factor": 4.0, "type": "linear"}})",
     kLinear4},
    {"togethercomputer/LLaMA-2-7B-32K", "llama2-7b",
     R"({"rope_scaling": {"factor": 8.0, "type": "linear"}})",
     R"({"rope_scaling.factor": 8.0, "rope_scaling.original_max_seq": 1})"},
    {"NousResearch/Yarn-Llama-2-7b-64k", "llama2-7b",
     R"({"rope_scaling": {"factor": 16.0, "finetuned": true, "type": "yarn",
         "original_max_position_embeddings": 4096}})",
     nullptr, "rope_scaling.type: wanted default or linear or llama3"},
    {"TheBloke/Llama-2-7B-GPTQ", "llama2-7b",
     R"({"quantization_config": {"bits": 4, "quant_method": "gptq"}})", nullptr,
     "quantization_config.quant_method: wanted fp8, or weights without quantization"},
    {"01-ai/Yi-34B", "llama2-7b", R"({"rope_theta": 5000000.0, "pad_token_id": 0})",
     R"({"rope_base": 5e6})"},
    {"deepseek-ai/deepseek-llm-7b-base", "llama2-7b",
     R"({"rope_scaling": null, "pretraining_tp": 1, "attention_bias": false})", kNone},
    {"deepseek-ai/deepseek-coder-6.7b-base", "llama2-7b",
     R"({"rope_scaling": {"factor": 4.0, "type": "linear"}, "bos_token_id": 32013})", kLinear4},
    {"tiiuae/Falcon3-7B-Base", "llama3-8b", R"({"activation": "swiglu", "mlp_bias": false})",
     kNone},
    {"a Mistral saved in the form of Llama", "llama3-8b", R"({"sliding_window": 4096})", kNone},
    {"internlm/internlm2-7b in the form of Llama", "llama3-8b",
     R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}, "attn_implementation": "eager"})",
     nullptr, "rope_scaling.type: wanted default or linear or llama3"},
    {"OpenBuddy's long models", "llama3-8b",
     R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0],
         "original_max_position_embeddings": 4096}})",
     nullptr, "rope_scaling.rope_type: wanted default or linear or llama3"},
    {"a fine-tune of axolotl", "llama3-8b",
     R"({"_name_or_path": "meta-llama/Meta-Llama-3-8B", "neftune_noise_alpha": 5,
         "gradient_checkpointing": true, "use_cache": false})",
     kNone},
    // Qwen.
    {"Qwen/Qwen2-7B", "qwen2.5-7b",
     R"({"max_window_layers": 28, "sliding_window": 131072, "use_sliding_window": false})", kNone},
    {"Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b",
     R"({"max_window_layers": 28, "sliding_window": 131072, "use_sliding_window": false,
         "eos_token_id": 151645})",
     kNone},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2.5-7b",
     R"({"max_window_layers": 28, "sliding_window": 4096, "use_mrope": false,
         "use_sliding_window": false})",
     kNone},
    {"Qwen/Qwen2.5-7B-Instruct with its model card's YaRN", "qwen2.5-7b",
     R"({"rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768,
         "type": "yarn"}})",
     nullptr, "rope_scaling.type: wanted default, as family qwen2 has no other scaling"},
    {"Qwen/Qwen2.5-7B-Instruct-1M", "qwen2.5-7b",
     R"({"dual_chunk_attention_config": {"chunk_size": 262144, "local_size": 8192}})", nullptr,
     "dual_chunk_attention_config: wanted no such key"},
    {"Qwen/Qwen3-8B", "qwen3-8b",
     R"({"max_window_layers": 36, "sliding_window": null, "rope_scaling": null})", kNone},
    {"unsloth/Qwen3-8B", "qwen3-8b",
     R"({"unsloth_fixed": true, "max_window_layers": 36, "pad_token_id": 151654})", kNone},
    {"deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "qwen3-8b",
     R"({"rope_scaling": {"attn_factor": 0.8782488562869419, "factor": 4.0,
         "original_max_position_embeddings": 32768, "rope_type": "yarn"}})",
     nullptr, "rope_scaling.rope_type: wanted default, as family qwen3 has no other scaling"},
    {"Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b",
     R"({"max_window_layers": 48, "output_router_logits": false, "router_aux_loss_coef": 0.001})",
     kNoLoss},
    {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b",
     R"({"max_window_layers": 28, "output_router_logits": false, "router_aux_loss_coef": 0.0,
         "qkv_bias": false, "use_qk_norm": true, "shared_expert_intermediate_size": 0})",
     kNoLoss},
    {"Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-30b-a3b",
     R"({"max_window_layers": 94, "router_aux_loss_coef": 0.001, "mlp_only_layers": []})", kNoLoss},
    // Mixtures of experts.
    {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b",
     R"({"output_router_logits": false, "router_aux_loss_coef": 0.02, "sliding_window": null})",
     kNoLoss},
    {"mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b",
     R"({"output_router_logits": false, "router_aux_loss_coef": 0.001,
         "router_jitter_noise": 0.0})",
     kNoLoss},
    {"cognitivecomputations/dolphin-2.5-mixtral-8x7b", "mixtral-8x7b",
     R"({"output_router_logits": true, "router_aux_loss_coef": 0.02, "use_cache": false})",
     R"({"moe.aux_loss": 0.00125, "moe.aux_loss_scope": "MODEL"})"},
    {"a Mixtral with jitter", "mixtral-8x7b", R"({"router_jitter_noise": 0.01})", nullptr,
     "router_jitter_noise: wanted 0.0"},
    {"openai/gpt-oss-20b", "gpt-oss-20b",
     R"({"experts_per_token": 4, "initial_context_length": 4096, "output_router_logits": false,
         "router_aux_loss_coef": 0.9, "quantization_config":
         {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"}})",
     kNoLoss},
    {"unsloth/gpt-oss-20b-BF16", "gpt-oss-20b",
     R"({"experts_per_token": 4, "router_aux_loss_coef": 0.9, "unsloth_fixed": true})", kNoLoss},
    {"deepseek-ai/DeepSeek-V3", "deepseek-v3-671b",
     R"({"ep_size": 1, "num_nextn_predict_layers": 1, "pretraining_tp": 1, "aux_loss_alpha": 0.001,
         "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
         "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3",
         "quant_method": "fp8", "weight_block_size": [128, 128]}})",
     R"({"moe.aux_loss": 0.001})"},
    {"unsloth/DeepSeek-R1-BF16", "deepseek-v3-671b",
     R"({"ep_size": 1, "num_nextn_predict_layers": 1, "unsloth_fixed": true})", kNone},
    {"moonshotai/Moonlight-16B-A3B", "deepseek-v3-671b",
     R"({"ep_size": 1, "q_lora_rank": null, "num_nextn_predict_layers": 0, "n_group": 1,
         "topk_group": 1, "rope_scaling": null, "routed_scaling_factor": 2.446})",
     R"({"q_lora_rank": 0, "moe.groups": 1, "moe.topk_groups": 1, "moe.routed_scaling": 2.446,
         "yarn_factor": 0.0})"},
    {"moonshotai/Kimi-K2-Instruct", "kimi-k2",
     R"({"model_type": "kimi_k2", "num_nextn_predict_layers": 0, "ep_size": 1,
         "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}})",
     kNone},
    {"deepseek-ai/DeepSeek-V2-Lite", "deepseek-v3-671b", R"({"model_type": "deepseek_v2"})",
     nullptr, "model_type: wanted one of "},
    // Nemotron.
    {"nvidia/Minitron-4B-Base", "nemotron-8b",
     R"({"kv_channels": 128, "initializer_range": 0.0134, "rope_scaling": null})", kNone},
    {"nvidia/Nemotron-Mini-4B-Instruct", "nemotron-8b",
     R"({"kv_channels": 128, "num_query_groups": null})", kNone},
    {"a Nemotron whose keys contradict each other", "nemotron-8b", R"({"kv_channels": 96})",
     nullptr, "kv_channels: wanted 128, found 96"},
    {"nvidia/Nemotron-H-8B-Base-8K", "nemotron3-nano-30b",
     R"({"attention_head_dim": 128, "chunk_size": 128, "expand": 2, "num_logits_to_keep": 1,
         "rescale_prenorm_residual": true, "rms_norm_eps": 1e-05, "sliding_window": null,
         "time_step_floor": 0.0001, "time_step_max": 0.1, "time_step_rank": 256,
         "time_step_limit": [0.0, {"__float__": "Infinity"}], "use_mamba_kernels": true})",
     kNone},
    {"nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron3-nano-30b",
     R"({"mamba_ssm_cache_dtype": "float32", "rms_norm_eps": 1e-05, "num_logits_to_keep": 1})",
     kNone},
    // Gemma 3.
    {"google/gemma-3-1b-it", "gemma3-1b",
     R"({"cache_implementation": "hybrid", "attn_logit_softcapping": null,
         "final_logit_softcapping": null, "eos_token_id": [1, 106]})",
     kNone},
    {"google/gemma-3-270m", "gemma3-1b",
     R"({"_sliding_window_pattern": 6, "use_bidirectional_attention": false,
         "rope_scaling": null})",
     kNone},
    {"google/gemma-3-4b-it", "gemma3-4b", R"({"model_type": "gemma3"})", nullptr,
     "model_type: wanted one of "},
    // GPT-2.
    {"openai-community/gpt2", "gpt2-124m",
     R"({"n_ctx": 1024, "summary_activation": null, "summary_first_dropout": 0.1,
         "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
         "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}})",
     kNone},
    {"distilbert/distilgpt2", "gpt2-124m",
     R"({"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "n_ctx": 1024,
         "is_decoder": true, "gradient_checkpointing": false,
         "summary_type": "cls_index", "task_specific_params": {}})",
     kNone},
    {"microsoft/DialoGPT-medium", "gpt2-350m",
     R"({"n_ctx": 1024, "task_specific_params": {"conversational": {"max_length": 1000}}})", kNone},
    {"openai-community/gpt2-xl", "gpt2-1558m",
     R"({"n_ctx": 1024, "n_special": 0, "output_past": true, "predict_special_tokens": true})",
     kNone},
    {"stanford-crfm/alias-gpt2-small-x21", "gpt2-124m",
     R"({"scale_attn_by_inverse_layer_idx": true})", nullptr,
     "scale_attn_by_inverse_layer_idx: wanted false"},
};

// What the family writes, and what every published file has.
json Usual(const Public& row) {
  json config = *ConfigToHf(FindPreset(row.preset)->config, json::object());
  config.update({{"bos_token_id", 1},
                 {"eos_token_id", 2},
                 {"initializer_range", 0.02},
                 {"torch_dtype", "bfloat16"},
                 {"transformers_version", "4.40.1"},
                 {"use_cache", true}});
  return config;
}

json With(json config, const json& keys) {
  for (const auto& [key, value] : keys.items()) config[key] = value;
  return config;
}

FieldValue ValueOf(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.get<int64_t>();
  return value.get<double>();
}

TEST(PublicConfigsTest, EachIsReadOrRefusedByOneTrueError) {
  std::set<std::string> models;
  for (const Public& row : kPublic) {
    SCOPED_TRACE(row.model);
    EXPECT_TRUE(models.insert(row.model).second) << "twice";
    const auto read = ConfigFromHf(With(Usual(row), json::parse(row.keys)));
    if (row.changes == nullptr) {
      const std::string message(read.status().message());
      EXPECT_THAT(message, HasSubstr(row.refusal));
      EXPECT_THAT(message, Not(HasSubstr("\n"))) << "more than one error";
      continue;
    }
    ASSERT_TRUE(read.ok()) << read.status();
    ModelConfig wanted = *ConfigFromHf(Usual(row));
    const json changes = json::parse(row.changes);
    for (const auto& [field, value] : changes.items()) {
      SetField(wanted, field, ValueOf(value));
    }
    EXPECT_EQ(*read, wanted);
  }
  EXPECT_GE(models.size(), 40u);
}

// What nothing was trained of is exported as it was.
TEST(PublicConfigsTest, AnExportHasTheKeysOfTheImport) {
  const std::set<std::string> lost = {"auto_map", "quantization_config", "model_type",
                                      "num_nextn_predict_layers"};
  for (const Public& row : kPublic) {
    if (row.changes == nullptr) continue;
    SCOPED_TRACE(row.model);
    const json imported = With(Usual(row), json::parse(row.keys));
    const auto read = ConfigFromHf(imported);
    ASSERT_TRUE(read.ok()) << read.status();
    const auto exported = ConfigToHf(*read, imported);
    ASSERT_TRUE(exported.ok()) << exported.status();
    for (const std::string& key : ChangedKeys(imported, *exported)) {
      EXPECT_TRUE(lost.contains(key)) << key;
    }
  }
}

}  // namespace
}  // namespace trainyard::testing
