// Proves that config.json is read as `transformers` means it, in both forms of rotary settings;
// that what changes the meaning and is not supported is refused by key; and that a model's
// config.json is read as the same model.
#include "models/hf/config.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "models/families/gpt_oss.h"
#include "models/families/nemotron_h.h"
#include "tests/models/another_value.h"
#include "tests/models/hf/configs.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(HfConfigTest, ReadsTheReleasedConfigOfLlama32) {
  const auto config = ConfigFromHf(Llama());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config, FindPreset("llama3.2-1b")->config);
}

TEST(HfConfigTest, ReadsRopeParametersOfLaterReleases) {
  const auto config = ConfigFromHf(LaterLlama());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config, FindPreset("llama3.2-1b")->config);
}

// As Llama 2's, which lacks the later keys and has an earlier name of the type.
TEST(HfConfigTest, TakesTheDefaultsOfAbsentKeys) {
  json early = Llama();
  for (const char* key : {"rope_theta", "rope_scaling", "head_dim", "num_key_value_heads",
                          "tie_word_embeddings", "rms_norm_eps", "hidden_act", "architectures"}) {
    early.erase(key);
  }
  early["num_key_value_heads"] = nullptr;
  early["some_option"] = false;
  const auto config = ConfigFromHf(early);
  ASSERT_TRUE(config.ok()) << config.status();
  const DecoderConfig& c = AsDecoder(*config);
  EXPECT_EQ(c.rope_base, 10'000);
  EXPECT_EQ(c.rope_scaling.factor, 0);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.kv_heads, 32);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_FALSE(c.tied);
  early["rope_scaling"] = {{"type", "llama3"}};
  EXPECT_THAT(ConfigFromHf(early).status().message(),
              HasSubstr("rope_scaling.low_freq_factor: wanted a value, found none"));
  early["rope_scaling"] = Llama()["rope_scaling"];
  early["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(AsDecoder(*ConfigFromHf(early)).rope_scaling.original_max_seq, 131072);
}

void ExpectRefused(const json& config, const std::string& part) {
  const auto read = ConfigFromHf(config);
  ASSERT_FALSE(read.ok()) << config;
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(read.status().message(), HasSubstr(part));
}

TEST(HfConfigTest, RefusesWhatChangesTheMeaning) {
  const auto refuse = [](const char* key, const json& value, const std::string& part) {
    json config = Llama();
    config[key] = value;
    ExpectRefused(config, part);
  };
  refuse("hidden_act", "gelu", "hidden_act: wanted \"silu\"");
  refuse("attention_bias", true, "attention_bias: wanted false");
  refuse("mlp_bias", true, "mlp_bias: wanted false");
  refuse("attention_dropout", 1.5, "attention_dropout");
  refuse("attn_logit_softcapping", 50.0, "attn_logit_softcapping: wanted no such key");
  refuse("architectures", {"LlamaForSequenceClassification"}, "architectures: wanted");
  refuse("quantization_config", {{"quant_method", "gptq"}},
         "quant_method: wanted fp8, or weights without quantization, found \"gptq\"");
  refuse("quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {64, 128}}},
         "weight_block_size: wanted [128, 128], found [64,128]");
  refuse("quantization_config", 3, "quant_method: wanted fp8");
  refuse("model_type", "bert", "model_type: wanted one of llama, ");
  refuse("model_type", nullptr, "model_type: wanted one of llama, ");
  refuse("num_hidden_layers", nullptr, "num_hidden_layers: wanted a value, found null");
  refuse("num_hidden_layers", 1.5, "num_hidden_layers: wanted a whole number");
  refuse("num_hidden_layers", 1ull << 60, "num_hidden_layers: wanted 1 to 1024");
  refuse("num_key_value_heads", 5, "num_key_value_heads: wanted a divisor of heads");
  refuse("tie_word_embeddings", "yes", "tie_word_embeddings: wanted true or false");
  refuse("rms_norm_eps", "1e-5", "rms_norm_eps: wanted a number");
}

// Bug it must catch: an illegal value is named by the program's own field, for which a user of
// config.json looks in vain.
TEST(HfConfigTest, NamesTheKeyOfAnIllegalValueAndTheField) {
  const auto refusal = [](const char* key, const json& value) {
    json config = Llama();
    config[key] = value;
    return RefusalOf(config);
  };
  EXPECT_THAT(refusal("num_attention_heads", 0),
              AllOf(StartsWith("num_attention_heads: wanted 1 to "), HasSubstr("found 0"),
                    HasSubstr("; heads in a job spec"), Not(HasSubstr("model."))));
  EXPECT_THAT(refusal("head_dim", -2),
              AllOf(StartsWith("head_dim: wanted "), Not(HasSubstr("in a job spec"))))
      << "the field has the key's name";
  json config = Llama();
  config["rope_scaling"]["factor"] = -1.0;
  EXPECT_THAT(RefusalOf(config), StartsWith("rope_scaling.factor: wanted "));
  config = LaterLlama();
  config["rope_parameters"]["rope_theta"] = -1.0;
  EXPECT_THAT(RefusalOf(config), StartsWith("rope_parameters.rope_theta: wanted "));
  // What an absent key stands for may be illegal together with other values.
  config = Llama();
  config.erase("head_dim");
  config["num_attention_heads"] = config["num_key_value_heads"] = 3;
  EXPECT_THAT(RefusalOf(config), HasSubstr("config.json has no value for the key"));
}

TEST(HfConfigTest, RefusesRotarySettingsThatAreNotSupported) {
  const auto refuse = [](const char* key, const json& value, const std::string& part) {
    json config = Llama();
    config["rope_scaling"][key] = value;
    ExpectRefused(config, part);
  };
  refuse("rope_type", "dynamic", "rope_scaling.rope_type: wanted default or linear or llama3");
  refuse("attention_factor", 2.0, "rope_scaling.attention_factor: wanted no such key");
  refuse("factor", 0.0, "factor: wanted more than 0");
  refuse("rope_theta", 10'000.0, "rope_theta: wanted the value of rope_scaling.rope_theta");
  json config = Llama();
  config.erase("rope_scaling");
  config["rope_parameters"] = 3;
  EXPECT_EQ(RefusalOf(config), "rope_parameters: wanted an object, found 3");
}

json GptOss() {
  return {{"architectures", {"GptOssForCausalLM"}},
          {"model_type", "gpt_oss"},
          {"attention_bias", true},
          {"attention_dropout", 0.0},
          {"experts_per_token", 4},
          {"num_experts_per_tok", 4},
          {"head_dim", 64},
          {"hidden_size", 2880},
          {"initial_context_length", 4096},
          {"intermediate_size", 2880},
          {"layer_types", {"sliding_attention", "full_attention"}},
          {"max_position_embeddings", 131072},
          {"num_attention_heads", 64},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 8},
          {"num_local_experts", 32},
          {"quantization_config", {{"quant_method", "mxfp4"}}},
          {"rms_norm_eps", 1e-5},
          {"rope_scaling",
           {{"beta_fast", 32.0},
            {"beta_slow", 1.0},
            {"factor", 32.0},
            {"original_max_position_embeddings", 4096},
            {"rope_type", "yarn"},
            {"truncate", false}}},
          {"rope_theta", 150000},
          {"router_aux_loss_coef", 1e-3},
          {"sliding_window", 128},
          {"swiglu_limit", 7.0},
          {"tie_word_embeddings", false},
          {"vocab_size", 201088}};
}

TEST(HfConfigTest, ReadsGptOssAndRefusesOtherOnes) {
  ModelConfig wanted = FindPreset("gpt-oss-20b")->config;
  wanted.As<GptOssConfig>().layers = 2;
  const auto config = ConfigFromHf(GptOss());
  ASSERT_TRUE(config.ok()) << config.status();
  AsDecoder(wanted).moe->aux_loss = 0;  // Without output_router_logits.
  EXPECT_EQ(*config, wanted);

  json other = GptOss();
  other["layer_types"] = {"full_attention", "full_attention"};
  ExpectRefused(other, "layer_types: wanted [\"sliding_attention\"");
  other = GptOss();
  other["rope_scaling"]["truncate"] = true;
  ExpectRefused(other, "rope_scaling.truncate: wanted false");
  other["rope_scaling"].erase("truncate");  // `transformers` would truncate.
  ExpectRefused(other, "rope_scaling.truncate: wanted false");
  other.erase("rope_scaling");  // `transformers` would scale.
  ExpectRefused(other, "rope_parameters: wanted an object here or in rope_scaling, found none");
  other = GptOss();
  other["experts_per_token"] = 2;
  ExpectRefused(other, "num_experts_per_tok: wanted the value of experts_per_token");
  other = GptOss();
  other["swiglu_limit"] = 0;
  ExpectRefused(other, "swiglu_limit: wanted more than 0");
}

TEST(HfConfigTest, CarriesWhatMeansNothingForTraining) {
  const auto config = ConfigFromHf(Llama());
  ASSERT_TRUE(config.ok());
  const auto written = ConfigToHf(*config, Llama());
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*written, Llama());
}

// Each of these means another model to `transformers`.
TEST(HfConfigTest, RefusesWhatNullFalseAndAbsentKeysMeanToTransformers) {
  for (const char* preset : {"llama3-8b", "qwen2.5-7b", "deepseek-v3-671b", "gemma3-1b"}) {
    json config = PresetConfig(preset);
    config["is_causal"] = true;
    EXPECT_TRUE(ConfigFromHf(config).ok()) << preset;
    for (const json& other : {json(false), json()}) {
      config["is_causal"] = other;
      EXPECT_THAT(RefusalOf(config), HasSubstr("is_causal: wanted true")) << preset;
    }
  }
  for (const char* key : {"rope_interleave", "norm_topk_prob"}) {
    json config = PresetConfig("deepseek-v3-671b");
    config[key] = nullptr;
    EXPECT_THAT(RefusalOf(config), HasSubstr(std::string(key) + ": wanted true"));
  }
  json config = PresetConfig("deepseek-v3-671b");
  config["rope_scaling"].erase("mscale_all_dim");
  EXPECT_THAT(RefusalOf(config), HasSubstr("mscale_all_dim: wanted a value, found none"));
  config["rope_scaling"]["mscale_all_dim"] = 0.5;
  EXPECT_THAT(RefusalOf(config), HasSubstr("mscale_all_dim: wanted 1, as another key says"));
}

// As it was released. `transformers` has this type only with files of Python beside it.
TEST(HfConfigTest, KimiK2HasATypeOfItsOwn) {
  json config = PresetConfig("kimi-k2");
  EXPECT_EQ(config["model_type"], "deepseek_v3");
  config["model_type"] = "kimi_k2";
  const auto read = ConfigFromHf(config);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, *ConfigFromHf(PresetConfig("kimi-k2")));
}

TEST(HfConfigTest, MistralWithoutAWindowIsALlama) {
  json config = PresetConfig("llama3-8b");
  const ModelConfig llama = *ConfigFromHf(config);
  config["model_type"] = "mistral";
  EXPECT_THAT(RefusalOf(config), HasSubstr("architectures: wanted [\"MistralForCausalLM\"]"));
  config["architectures"] = {"MistralForCausalLM"};
  config.erase("sliding_window");
  EXPECT_THAT(RefusalOf(config),
              HasSubstr("sliding_window: wanted null, as this program has no other, found none"));
  config["sliding_window"] = 4096;
  EXPECT_THAT(RefusalOf(config), HasSubstr("sliding_window: wanted null, as this program has no "
                                           "other, found 4096"));
  config["sliding_window"] = nullptr;
  ASSERT_TRUE(ConfigFromHf(config).ok()) << ConfigFromHf(config).status();
  EXPECT_EQ(*ConfigFromHf(config), llama);
  config.erase("num_key_value_heads");
  EXPECT_THAT(RefusalOf(config), HasSubstr("num_key_value_heads: wanted a value, as the default of "
                                           "mistral is another, found none"));
}

TEST(HfConfigTest, MixtralHasEightKeyValueHeadsOrAsManyAsQueries) {
  json config = PresetConfig("mixtral-8x22b");
  config.erase("num_key_value_heads");
  EXPECT_EQ(FactsOf(*ConfigFromHf(config)).kv_heads, 8);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(FactsOf(*ConfigFromHf(config)).kv_heads, 48);
}

TEST(HfConfigTest, RotaryParametersOfAnotherTypeAreRefusedAndDoNotEndTheProgram) {
  json config = PresetConfig("gemma3-1b");
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
                               {"sliding_attention", {{"rope_type", 7}, {"rope_theta", 1e4}}}};
  EXPECT_THAT(RefusalOf(config), StartsWith("rope_parameters.sliding_attention.rope_type: "));
  EXPECT_THAT(RefusalOf(config), Not(HasSubstr("\n")));
}

// Bug it must catch: an error advises to ignore a scaling, and the import has none.
TEST(HfConfigTest, SettingsOfOneKindOfLayersCannotBeIgnored) {
  json config = PresetConfig("gemma3-1b");
  config.erase("rope_scaling");
  const json plain = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  json linear = plain;
  linear["rope_type"] = "linear", linear["factor"] = 8.0;
  config["rope_parameters"] = {{"full_attention", plain}, {"sliding_attention", linear}};
  const auto refusal = [&](const std::vector<std::string>& ignored) {
    return std::string(ConfigFromHf(config, ignored).status().message());
  };
  const std::string factor = "rope_parameters.sliding_attention.factor";
  EXPECT_THAT(refusal({}), HasSubstr(factor + ": wanted none, as family gemma3 has no such "));
  EXPECT_THAT(refusal({}), Not(HasSubstr("--ignore")));
  EXPECT_THAT(refusal({factor, "rope_parameters.sliding_attention.rope_type"}), HasSubstr(factor));
  config["rope_parameters"] = {{"full_attention", linear}};
  const std::string full = "rope_parameters.full_attention";
  EXPECT_THAT(refusal({full}), StartsWith(full + ": wanted none"));
}

bool HasKey(const HfTable& table, absl::string_view field) {
  const auto in = [&](const std::vector<HfKey>& keys) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const HfKey& key) { return key.field == field; });
  };
  return in(table.keys) || in(table.rope_keys) ||
         std::any_of(table.rope_scalings.begin(), table.rope_scalings.end(),
                     [&](const HfRopeScaling& scaling) { return in(scaling.keys); });
}

// Whether the form may lose the field: it is of a run alone, and the family has no key for it.
bool MayLose(const HfTable& table, const FieldRule& rule) {
  return rule.may_differ == MayDiffer::kAlways && !HasKey(table, rule.name);
}

// The configuration with the family's defaults for the fields that the form may lose.
ModelConfig WithoutLost(const Family& family, ModelConfig config) {
  for (const Field& field : FieldsOf(family.defaults)) {
    if (MayLose(*family.hf, field.rule)) SetField(config, field.rule.name, field.value);
  }
  // A loss of each layer by itself is none to `transformers`, and it moves no bias.
  if (family.hf->balance) SetField(config, "moe.aux_loss", 0.0);
  const DecoderConfig* const decoder = FindDecoder(config);
  if (decoder != nullptr && decoder->moe && decoder->moe->expert_bias) {
    SetField(config, "moe.bias_update_rate", 0.0);
  }
  return config;
}

TEST(HfConfigTest, EveryPresetIsReadAsItWasWritten) {
  for (const Family& family : Families()) {
    for (const Preset& preset : family.presets) {
      SCOPED_TRACE(preset.name);
      const auto written = ConfigToHf(preset.config, json::object());
      if (!family.hf) {
        EXPECT_THAT(written.status().message(), HasSubstr("has no Hugging Face form; wanted one"));
        continue;
      }
      ASSERT_TRUE(written.ok()) << written.status();
      const auto again = ConfigFromHf(*written);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, WithoutLost(family, preset.config));
    }
  }
}

// `transformers` adds no loss and moves no bias, whatever DeepSeek trained with.
TEST(HfConfigTest, DeepseekBalancesNothing) {
  for (const char* preset : {"deepseek-v3-671b", "kimi-k2"}) {
    json config = PresetConfig(preset);
    for (const json& sequence : {json(true), json(false), json()}) {
      config["aux_loss_alpha"] = 0.001;
      config["seq_aux"] = sequence;
      const auto read = ConfigFromHf(config);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(AsDecoder(*read).moe->aux_loss, 0);
      EXPECT_EQ(AsDecoder(*read).moe->bias_update_rate, 0);
      EXPECT_TRUE(AsDecoder(*read).moe->expert_bias);
    }
  }
}

TEST(HfConfigTest, ReadsTheReleasedConfigOfQwen3Moe) {
  const json released = {{"architectures", {"Qwen3MoeForCausalLM"}},
                         {"attention_bias", false},
                         {"attention_dropout", 0.0},
                         {"bos_token_id", 151643},
                         {"decoder_sparse_step", 1},
                         {"eos_token_id", 151645},
                         {"head_dim", 128},
                         {"hidden_act", "silu"},
                         {"hidden_size", 2048},
                         {"initializer_range", 0.02},
                         {"intermediate_size", 6144},
                         {"max_position_embeddings", 40960},
                         {"max_window_layers", 48},
                         {"mlp_only_layers", json::array()},
                         {"model_type", "qwen3_moe"},
                         {"moe_intermediate_size", 768},
                         {"norm_topk_prob", true},
                         {"num_attention_heads", 32},
                         {"num_experts", 128},
                         {"num_experts_per_tok", 8},
                         {"num_hidden_layers", 48},
                         {"num_key_value_heads", 4},
                         {"output_router_logits", false},
                         {"rms_norm_eps", 1e-6},
                         {"rope_scaling", nullptr},
                         {"rope_theta", 1000000.0},
                         {"router_aux_loss_coef", 1e-3},
                         {"sliding_window", nullptr},
                         {"tie_word_embeddings", false},
                         {"torch_dtype", "bfloat16"},
                         {"use_sliding_window", false},
                         {"vocab_size", 151936}};
  const auto config = ConfigFromHf(released);
  ASSERT_TRUE(config.ok()) << config.status();
  ModelConfig wanted = FindPreset("qwen3-30b-a3b")->config;
  AsDecoder(wanted).moe->aux_loss = 0;
  EXPECT_EQ(*config, wanted);
  json other = released;
  other["mlp_only_layers"] = nullptr;
  EXPECT_EQ(*ConfigFromHf(other), wanted);
  other["mlp_only_layers"] = {0};
  ExpectRefused(other, "mlp_only_layers: wanted []");
  other = released;
  other["use_sliding_window"] = true;
  ExpectRefused(other, "use_sliding_window: wanted false");
}

TEST(HfConfigTest, ReadsTheReleasedConfigOfGpt2) {
  const json released = {
      {"activation_function", "gelu_new"},
      {"architectures", {"GPT2LMHeadModel"}},
      {"attn_pdrop", 0.1},
      {"bos_token_id", 50256},
      {"embd_pdrop", 0.1},
      {"eos_token_id", 50256},
      {"initializer_range", 0.02},
      {"layer_norm_epsilon", 1e-05},
      {"model_type", "gpt2"},
      {"n_ctx", 1024},
      {"n_embd", 1024},
      {"n_head", 16},
      {"n_layer", 24},
      {"n_positions", 1024},
      {"n_special", 0},
      {"predict_special_tokens", true},
      {"resid_pdrop", 0.1},
      {"summary_activation", nullptr},
      {"summary_first_dropout", 0.1},
      {"summary_proj_to_labels", true},
      {"summary_type", "cls_index"},
      {"summary_use_proj", true},
      {"task_specific_params", {{"text-generation", {{"do_sample", true}, {"max_length", 50}}}}},
      {"vocab_size", 50257}};
  ModelConfig wanted = FindPreset("gpt2-350m")->config;
  AsDecoder(wanted).vocab = 50257;  // The preset rounds it up.
  AsDecoder(wanted).attention_dropout = 0.1;
  AsDecoder(wanted).hidden_dropout = 0.1;
  const auto config = ConfigFromHf(released);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config, wanted);
  json other = released;
  other.erase("attn_pdrop");  // `transformers` drops out without the keys, too.
  other.erase("resid_pdrop");
  EXPECT_EQ(*ConfigFromHf(other), wanted);
  other = released;
  other["n_inner"] = 3072;
  EXPECT_EQ(AsDecoder(*ConfigFromHf(other)).ffn, 3072);
  other = released;
  other["embd_pdrop"] = 0.0;
  ExpectRefused(other, "resid_pdrop: wanted 0, as another key says");
  other = released;
  other["scale_attn_by_inverse_layer_idx"] = true;
  ExpectRefused(other, "scale_attn_by_inverse_layer_idx: wanted false");
}

// The keys of NVIDIA's release of Nemotron 3 Nano that are about the model.
json NemotronH() {
  json config = PresetConfig("nemotron3-nano-30b");
  config["chunk_size"] = 128;
  config["expand"] = 2;
  config["norm_eps"] = 1e-5;
  config["partial_rotary_factor"] = 1.0;
  config["rescale_prenorm_residual"] = true;
  config["rope_theta"] = 10000;
  config["sliding_window"] = nullptr;
  return config;
}

TEST(HfConfigTest, NemotronHReadsAPatternOrAListOfWords) {
  json config = NemotronH();
  EXPECT_TRUE(config["moe_latent_size"].is_null());
  const ModelConfig wanted = *ConfigFromHf(config);
  const std::string pattern = config["hybrid_override_pattern"];
  config.erase("hybrid_override_pattern");
  EXPECT_THAT(RefusalOf(config), HasSubstr("hybrid_override_pattern: wanted a value, found none"));
  const std::map<char, std::pair<const char*, const char*>> words = {
      {'M', {"linear_attention", "mamba"}},
      {'*', {"full_attention", "attention"}},
      {'E', {"moe", "moe"}}};
  for (const bool early : {false, true}) {
    json list = json::array();
    for (const char letter : pattern) {
      list.push_back(early ? words.at(letter).second : words.at(letter).first);
    }
    json with_list = config;
    with_list[early ? "layer_types" : "layers_block_type"] = list;
    EXPECT_EQ(*ConfigFromHf(with_list), wanted);
    with_list["hybrid_override_pattern"] = pattern;
    EXPECT_THAT(RefusalOf(with_list), HasSubstr("wanted no such key")) << "which of both?";
  }
  config["layers_block_type"] = {"linear_attention", "sliding_attention"};
  EXPECT_THAT(RefusalOf(config), HasSubstr("layers_block_type: wanted no such key"));
}

TEST(HfConfigTest, NemotronHReadsWhatAbsentKeysMean) {
  json config = NemotronH();
  config["time_step_min"] = 0.001;
  EXPECT_EQ(ConfigFromHf(config)->As<NemotronHConfig>().mamba_min_step, 0.001);
  config.erase("time_step_min");
  EXPECT_EQ(ConfigFromHf(config)->As<NemotronHConfig>().mamba_min_step, 0.001);
  config["moe_latent_size"] = 64;
  EXPECT_EQ(ConfigFromHf(config)->As<NemotronHConfig>().moe->latent, 64);
  config["moe_latent_size"] = 0;
  EXPECT_THAT(RefusalOf(config), HasSubstr("moe_latent_size: wanted more than 0"));
  config["moe_latent_size"] = nullptr;
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(FactsOf(*ConfigFromHf(config)).kv_heads, 32);
  config["num_hidden_layers"] = 51;
  EXPECT_THAT(RefusalOf(config), HasSubstr("num_hidden_layers: wanted 52, found 51"));
  config["num_hidden_layers"] = 52;
  for (const auto& [key, value] : {std::pair<const char*, json>("time_step_limit", {0.0, 0.1}),
                                   {"use_bias", true},
                                   {"mlp_hidden_act", "silu"},
                                   {"use_conv_bias", false},
                                   {"residual_in_fp32", true},
                                   {"n_shared_experts", 0},
                                   {"hybrid_override_pattern", "MEX"}}) {
    json other = config;
    other[key] = value;
    EXPECT_FALSE(ConfigFromHf(other).ok()) << key;
  }
}

// No field is lost without a word: with another value, each is read back with that value, or is
// refused. A field of a run alone may be lost if the family has no key for it.
TEST(HfConfigTest, WritesEveryFieldOrRefusesIt) {
  for (const Family& family : Families()) {
    if (!family.hf) continue;
    const ModelConfig& preset = family.presets.front().config;
    for (const Field& field : FieldsOf(preset)) {
      SCOPED_TRACE(absl::StrCat(family.name, " ", field.rule.name));
      ModelConfig config = preset;
      SetField(config, field.rule.name, Another(field));
      const auto written = ConfigToHf(config, json::object());
      if (!written.ok()) continue;
      const auto again = ConfigFromHf(*written);
      ASSERT_TRUE(again.ok()) << again.status();
      const bool idle = field.rule.unset;  // A setting of a scaling that the preset does not use.
      EXPECT_TRUE(*again == WithoutLost(family, config) || idle);
    }
  }
}

// Fields that the form lacks.
TEST(HfConfigTest, RefusesToWriteFieldsThatTheFormLacks) {
  const auto refuse = [](ModelConfig config, const std::string& part) {
    const auto written = ConfigToHf(config, json::object());
    EXPECT_THAT(written.status().message(), HasSubstr(part));
  };
  ModelConfig config = TinyLlama();
  AsDecoder(config).attention_soft_cap = 30;
  refuse(config, "model.attention_soft_cap: wanted 0");
  config = TinyMoe();
  AsDecoder(config).moe->router = RouterScoring::kSigmoid;
  refuse(config, "model.moe.router: wanted SOFTMAX");
  config = TinyMoe();
  AsDecoder(config).moe->shared_experts = 1;
  AsDecoder(config).moe->shared_ffn = 5;
  AsDecoder(config).ffn = 1;
  refuse(config, "model.moe.shared");
  config = TinyOf("gpt_oss");
  config.As<GptOssConfig>().swiglu_limit = 0;
  refuse(config, "model.swiglu_limit: wanted 7");
  config.As<GptOssConfig>() = TinyOf("gpt_oss").As<GptOssConfig>();
  config.As<GptOssConfig>().yarn_factor = 0;
  EXPECT_TRUE(ConfigToHf(config, json::object()).ok());
}

}  // namespace
}  // namespace trainyard::testing
