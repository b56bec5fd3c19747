// Proves for whole kinds of config.json that they are read as `transformers` means them, or refused
// by one true error: keys that stand in two places, keys without a meaning, losses that nobody
// asked for, and what an export keeps.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "models/families/deepseek_v3.h"
#include "models/hf/config.h"
#include "tests/models/hf/configs.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// As when one program adds the later spelling and keeps the earlier one. `transformers` takes
// rope_scaling, and rope_theta beside it.
TEST(HfConfigKindsTest, BothSpellingsOfRotarySettingsMustSayTheSame) {
  json config = Llama();
  config["rope_parameters"] = config["rope_scaling"];
  EXPECT_EQ(*ConfigFromHf(config), FindPreset("llama3.2-1b")->config);
  config["rope_parameters"]["rope_theta"] = 500000;
  EXPECT_EQ(*ConfigFromHf(config), FindPreset("llama3.2-1b")->config);
  config["rope_parameters"]["rope_theta"] = 10000;
  EXPECT_EQ(RefusalOf(config),
            "rope_parameters.rope_theta: wanted the value of rope_scaling, 500000.0, found 10000");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000}};
  EXPECT_EQ(RefusalOf(config),
            R"(rope_parameters.rope_type: wanted the value of rope_scaling, "llama3", found )"
            R"("default")");
  config["rope_scaling"] = json::object();  // `transformers` takes an empty one for none.
  EXPECT_EQ(AsDecoder(*ConfigFromHf(config)).rope_scaling.factor, 0);
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(AsDecoder(*ConfigFromHf(config)).rope_scaling.factor, 0);
}

// `transformers` prefers the one at the top. Bug it must catch: a key that is read in one place
// counts as known in another.
TEST(HfConfigKindsTest, AKeyIsKnownOnlyWhereItIsRead) {
  json config = Llama();
  config["original_max_position_embeddings"] = 64;
  EXPECT_EQ(RefusalOf(config),
            "original_max_position_embeddings: wanted the value of "
            "rope_scaling.original_max_position_embeddings, 8192, found 64");
  config["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(AsDecoder(*ConfigFromHf(config)).rope_scaling.original_max_seq, 64);
  for (const char* key : {"factor", "low_freq_factor", "rope_type", "type"}) {
    json other = Llama();
    other[key] = Llama()["rope_scaling"].value(key, json(2));
    EXPECT_THAT(RefusalOf(other), HasSubstr(std::string(key) + ": wanted no such key"));
  }
  for (const char* key : {"hidden_size", "torch_dtype", "use_cache", "vocab_size"}) {
    json other = Llama();
    other["rope_scaling"][key] = other.value(key, json(true));
    EXPECT_THAT(RefusalOf(other), HasSubstr(std::string("rope_scaling.") + key + ": wanted no"));
  }
}

TEST(HfConfigKindsTest, LinearScalingStretchesAllWavelengths) {
  json config = Llama();
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 3.0}};
  const auto read = ConfigFromHf(config);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(AsDecoder(*read).rope_scaling.factor, 3);
  EXPECT_EQ(AsDecoder(*read).rope_scaling.original_max_seq, 1);
  EXPECT_EQ((*ConfigToHf(*read, config))["rope_scaling"], config["rope_scaling"]);
  EXPECT_EQ((*ConfigToHf(*read, json::object()))["rope_scaling"],
            json({{"rope_type", "linear"}, {"factor", 3.0}}));
}

// What nobody has seen is ignored if the user says so, and nothing else is.
TEST(HfConfigKindsTest, IgnoresUnknownKeysThatTheUserNames) {
  json config = Llama();
  config["fancy"] = 3;
  config["rope_scaling"]["finetuned"] = true;
  const std::vector<std::string> both = {"fancy", "rope_scaling.finetuned"};
  EXPECT_THAT(RefusalOf(config), HasSubstr("--ignore fancy"));
  const auto read = ConfigFromHf(config, both);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, FindPreset("llama3.2-1b")->config);
  EXPECT_EQ(*ConfigToHf(*read, config, both), config);
  const auto refusal = [&](const char* key) {
    std::vector<std::string> keys = both;
    keys.emplace_back(key);
    return std::string(ConfigFromHf(config, keys).status().message());
  };
  EXPECT_THAT(refusal("hidden_size"), HasSubstr("hidden_size: wanted a key that this program"));
  EXPECT_THAT(refusal("rope_scaling.factor"), HasSubstr("rope_scaling.factor: wanted a key"));
  EXPECT_THAT(refusal("fancier"), HasSubstr("fancier: wanted keys that config.json has"));
  EXPECT_TRUE(refusal("torch_dtype").empty());  // It means nothing anyway.
}

// A key that means nothing with one value does not with another.
TEST(HfConfigKindsTest, SomeKeysMeanNothingWithOneValue) {
  json config = PresetConfig("qwen3-30b-a3b");
  config["use_qk_norm"] = true;
  config["shared_expert_intermediate_size"] = 0;
  EXPECT_TRUE(ConfigFromHf(config).ok());
  config["shared_expert_intermediate_size"] = 512;
  EXPECT_EQ(RefusalOf(config),
            "shared_expert_intermediate_size: wanted 0, as this program has no "
            "other, found 512");
  config["shared_expert_intermediate_size"] = 0;
  config["use_qk_norm"] = false;
  EXPECT_EQ(RefusalOf(config),
            "use_qk_norm: wanted true, as this program has no other, found false");
  config = PresetConfig("gpt2-124m");
  config["pruned_heads"] = json::object();
  EXPECT_TRUE(ConfigFromHf(config).ok());
  config["pruned_heads"] = {{"0", {1}}};
  EXPECT_THAT(RefusalOf(config), HasSubstr("pruned_heads: wanted {}"));
}

// `transformers` adds the loss only where output_router_logits is true.
TEST(HfConfigKindsTest, BalancesExpertsOnlyWhereConfigJsonAsksForIt) {
  for (const char* preset : {"gpt-oss-20b", "mixtral-8x7b", "qwen3-30b-a3b"}) {
    SCOPED_TRACE(preset);
    json config = PresetConfig(preset);
    config["router_aux_loss_coef"] = 0.9;
    for (const json& off : {json(false), json()}) {
      config["output_router_logits"] = off;
      EXPECT_EQ(AsDecoder(*ConfigFromHf(config)).moe->aux_loss, 0);
    }
    config.erase("output_router_logits");
    EXPECT_EQ(AsDecoder(*ConfigFromHf(config)).moe->aux_loss, 0);
    config["output_router_logits"] = true;
    const auto read = ConfigFromHf(config);
    const MoeConfig moe = *AsDecoder(*read).moe;
    EXPECT_DOUBLE_EQ(moe.aux_loss * double(FactsOf(*read).layers) / double(moe.top_k), 0.9);
    EXPECT_EQ(moe.aux_loss_scope, BalanceScope::kModel);
    EXPECT_EQ(*ConfigFromHf(*ConfigToHf(*read, json::object())), *read);
    // Bug it must catch: the number that is refused is not the one that stands in the file.
    config["router_aux_loss_coef"] = 1e6;
    EXPECT_THAT(
        RefusalOf(config),
        AllOf(HasSubstr("router_aux_loss_coef: wanted 0 (none) <= x <= 10"),
              HasSubstr(absl::StrCat("; moe.aux_loss in a job spec is 1e+06 x ", moe.top_k,
                                     " experts of a token / ", FactsOf(*read).layers, " layers"))));
    config.erase("router_aux_loss_coef");
    EXPECT_GT(AsDecoder(*ConfigFromHf(config)).moe->aux_loss, 0);
    config["output_router_logits"] = "yes";
    EXPECT_THAT(RefusalOf(config), HasSubstr("output_router_logits: wanted true or false"));
  }
}

// Some programs write null for what a configuration does not say. `transformers` takes it for the
// default, an empty list among them.
TEST(HfConfigKindsTest, NullIsTheDefaultWhereTransformersTakesItForThat) {
  const struct {
    const char* preset;
    std::vector<const char*> keys;
  } families[] = {
      {"llama3-8b", {"head_dim", "quantization_config", "rope_scaling"}},
      {"mixtral-8x22b", {"sliding_window", "rope_scaling"}},
      {"mixtral-8x7b", {"head_dim", "sliding_window", "quantization_config"}},
      {"qwen2.5-7b", {"layer_types", "sliding_window", "rope_scaling", "max_window_layers"}},
      {"qwen3-30b-a3b", {"mlp_only_layers", "rope_scaling", "sliding_window", "layer_types"}},
      {"gemma3-1b", {"layer_types", "rope_scaling", "attn_logit_softcapping"}},
      {"gpt-oss-20b", {"layer_types"}},
      {"deepseek-v3-671b", {"quantization_config"}},
      {"gpt2-124m", {"n_inner", "task_specific_params"}},
  };
  for (const auto& [preset, keys] : families) {
    for (const char* key : keys) {
      SCOPED_TRACE(absl::StrCat(preset, " ", key));
      json absent = PresetConfig(preset), null = absent;
      absent.erase(key);
      null[key] = nullptr;
      const auto wanted = ConfigFromHf(absent);
      ASSERT_TRUE(wanted.ok()) << wanted.status();
      const auto read = ConfigFromHf(null);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, *wanted);
      EXPECT_TRUE(ConfigToHf(*read, null)->at(key).is_null());
    }
  }
}

// An absent rank is 1536, and null is none.
TEST(HfConfigKindsTest, DeepseekMayProjectQueriesWhole) {
  json config = PresetConfig("deepseek-v3-671b");
  config.erase("q_lora_rank");
  EXPECT_EQ(ConfigFromHf(config)->As<DeepseekV3Config>().q_lora_rank, 1536);
  config["q_lora_rank"] = nullptr;
  const auto read = ConfigFromHf(config);
  EXPECT_EQ(read->As<DeepseekV3Config>().q_lora_rank, 0);
  EXPECT_TRUE(ConfigToHf(*read, json::object())->at("q_lora_rank").is_null());
  config["q_lora_rank"] = 0;
  EXPECT_THAT(RefusalOf(config), HasSubstr("q_lora_rank: wanted more than 0"));
}

// Only the keys of what has changed, in the spelling of the import.
TEST(HfConfigKindsTest, AnExportChangesTheKeysOfWhatHasChanged) {
  json imported = PresetConfig("qwen3-30b-a3b");
  imported["num_local_experts"] = imported["num_experts"];
  imported.erase("num_experts");
  imported["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  for (const char* key : {"mlp_only_layers", "rope_scaling", "norm_topk_prob", "bos_token_id"}) {
    if (imported[key] != true) imported.erase(key);
  }
  ModelConfig config = *ConfigFromHf(imported);
  AsDecoder(config).attention_dropout = 0.25;
  const auto written = ConfigToHf(config, imported);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(ChangedKeys(imported, *written),
            (std::vector<std::string>{"attention_dropout", "quantization_config"}));
  AsDecoder(config).rope_base = 1e7;
  AsDecoder(config).moe->aux_loss = 1e-3;
  AsDecoder(config).moe->aux_loss_scope = BalanceScope::kModel;
  const auto again = ConfigFromHf(*ConfigToHf(config, imported));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, config);
}

// Bug it must catch: another base makes a file of later releases one of earlier ones.
TEST(HfConfigKindsTest, AnExportKeepsTheSpellingOfRotarySettings) {
  const json later = LaterLlama();
  json at_top = later, plain = later, empty = later;
  empty["rope_scaling"] = json::object();
  at_top["rope_theta"] = Llama()["rope_theta"];
  at_top["rope_parameters"].erase("rope_theta");
  plain["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  for (json imported : {later, at_top, plain, empty, Llama()}) {
    ModelConfig config = *ConfigFromHf(imported);
    AsDecoder(config).rope_base = 1e6;
    const bool inside = imported.contains("rope_parameters") && !imported.contains("rope_theta");
    (inside ? imported["rope_parameters"] : imported)["rope_theta"] = 1e6;
    const auto written = ConfigToHf(config, imported);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(*written, imported);
  }
}

// A family whose later form has an object for each kind of layer is written in the earlier one.
TEST(HfConfigKindsTest, AnExportOfAFamilysOwnRotaryFormIsReadBack) {
  json imported = PresetConfig("gemma3-1b");
  imported.erase("rope_scaling");
  imported.erase("rope_theta");
  imported.erase("rope_local_base_freq");
  imported["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  auto config = ConfigFromHf(imported);
  ASSERT_TRUE(config.ok()) << config.status();
  AsDecoder(*config).rope_base = 2e6;
  const auto written = ConfigToHf(*config, imported);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_FALSE(written->contains("rope_parameters"));
  EXPECT_EQ(*ConfigFromHf(*written), *config);
}

}  // namespace
}  // namespace trainyard::testing
