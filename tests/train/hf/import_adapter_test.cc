// Proves that an import of an adapter makes the run that the directory of PEFT describes, or
// nothing: each key of adapter_config.json and each tensor that would mean something else is
// refused by its name, with what was wanted, and a write that fails leaves nothing at the target.
// The golden adapters show what is right (golden_peft_test.cc).
#include "train/hf/import_adapter.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "common/files.h"
#include "common/half.h"
#include "gmock/gmock.h"
#include "tests/models/hf/files.h"
#include "tests/train/checkpoint/faulty_storage.h"
#include "tests/train/hf/directory.h"
#include "train/hf/export.h"
#include "train/hf/peft_directory.h"

namespace trainyard::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_checkpoint::Fault;
using testing_checkpoint::FaultyStorage;

constexpr char kPrefix[] = "base_model.model.";

std::string Golden(const std::string& name) { return SourceFile("tests/golden/" + name); }
std::string Layer(const std::string& rest) {
  return absl::StrCat(kPrefix, "model.layers.0.", rest);
}

// The content of a directory of PEFT, to be changed and written.
struct AdapterContent {
  json config;
  std::map<std::string, FileTensor> tensors;

  static AdapterContent Of(const std::string& name) {
    const std::string path = Golden("peft/" + name);
    AdapterContent content{.config = json::parse(*ReadFile(path + "/adapter_config.json")),
                           .tensors = {}};
    const auto file = SafetensorsFile::Open(path + "/adapter_model.safetensors");
    CHECK(file.ok()) << file.status();
    for (const auto& [tensor, info] : file->tensors()) {
      std::string bytes(size_t(info.bytes), '\0');
      CHECK(file->Read(info, 0, bytes.data(), bytes.size()).ok());
      content.tensors[tensor] = {info.dtype, info.shape, bytes};
    }
    return content;
  }

  std::string base() const {
    return Golden(config.at("base_model_name_or_path").get<std::string>());
  }

  void Write(const std::string& path) const {
    std::filesystem::create_directories(path);
    std::vector<SafetensorsEntry> entries;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({name, tensor.dtype, tensor.shape});
      data += tensor.bytes;
    }
    WriteBytes(path + "/adapter_model.safetensors", SafetensorsHeader(entries) + data);
    WriteBytes(path + "/adapter_config.json", config.dump());
  }
};

// The numbers of a tensor of F64 in another dtype.
FileTensor As(HfDType dtype, const FileTensor& tensor) {
  FileTensor other{.dtype = dtype, .shape = tensor.shape, .bytes = {}};
  for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(double)) {
    double value = 0;
    std::memcpy(&value, tensor.bytes.data() + i, sizeof(value));
    const float single = float(value);
    const uint16_t half = FloatToHalf(single);
    const bf16 brain(single);
    if (dtype == HfDType::kF16) other.bytes.append(reinterpret_cast<const char*>(&half), 2);
    if (dtype == HfDType::kBF16) other.bytes.append(reinterpret_cast<const char*>(&brain), 2);
    if (dtype == HfDType::kF32) other.bytes.append(reinterpret_cast<const char*>(&single), 4);
  }
  return other;
}

class ImportAdapterTest : public ::testing::Test {
 protected:
  absl::Status Import(const AdapterContent& content, const std::string& base,
                      absl::StatusCode code = absl::StatusCode::kInvalidArgument) const {
    content.Write(scratch_ + "/bad");
    const auto looked = ImportAdapter({.from = scratch_ + "/bad"}, base);
    const auto imported = ImportAdapter({.from = scratch_ + "/bad", .to = scratch_ + "/to"}, base);
    EXPECT_EQ(imported.status(), looked.status()) << "an import without a target promises this";
    if (!imported.ok()) {
      EXPECT_EQ(imported.status().code(), code) << imported.status();
      EXPECT_FALSE(Exists(scratch_ + "/to"));
      EXPECT_EQ(ListDirectory(scratch_)->front(), "bad") << "a hidden directory was left";
    }
    std::filesystem::remove_all(scratch_ + "/to");
    return imported.status();
  }

  void ExpectRefused(const AdapterContent& content, const std::string& part) const {
    EXPECT_THAT(std::string(Import(content, content.base()).message()), HasSubstr(part));
  }

  const std::string scratch_ = EmptyDirectory("scratch");
};

// Each key of LoraConfig of PEFT 0.21, with values that are not its default.
TEST_F(ImportAdapterTest, RefusesByKeyWhatHasNoMeaningHere) {
  struct Case {
    const char* key;
    json value;
    const char* part;
  };
  const Case cases[] = {
      {"peft_type", "LOHA", "peft_type: wanted \"LORA\", found \"LOHA\"; other kinds"},
      {"peft_type", nullptr, "peft_type: wanted \"LORA\", found null"},
      {"task_type", "SEQ_CLS", "task_type: wanted \"CAUSAL_LM\" or null, found \"SEQ_CLS\""},
      {"bias", "all", "bias: wanted \"none\", found \"all\""},
      {"bias", "lora_only", "bias: wanted \"none\", found \"lora_only\""},
      {"r", 0, "r: wanted 1 to 1024"},
      {"r", 2000, "nearest 1024"},
      {"r", 2.5, "r: wanted a whole number, found 2.5"},
      {"lora_alpha", 0, "lora_alpha: wanted 0 < x"},
      {"lora_alpha", "8", "lora_alpha: wanted a number, found \"8\""},
      {"lora_dropout", 1, "lora_dropout: wanted 0 <= x < 1"},
      {"use_rslora", 1, "use_rslora: wanted true or false, found 1"},
      {"fan_in_fan_out", true, "fan_in_fan_out: wanted false, since the layers of"},
      {"rank_pattern",
       {{"q_proj", 6}},
       "q_proj.lora_A.weight: wanted the shape [6, 12], by r and rank_pattern of adapter_config"},
      {"rank_pattern", {{"q_proj", 2000}}, "rank_pattern.q_proj: wanted 1 to 1024"},
      {"rank_pattern", {{"q_proj", 1.5}}, "rank_pattern.q_proj: wanted a whole number, found 1.5"},
      {"rank_pattern",
       {{"(x|q)_proj", 6}},
       "q_proj.lora_A.weight: wanted the shape [6, 12], by r and rank_pattern of adapter_config"},
      {"rank_pattern",
       {{R"(\bq_proj)", 6}},
       R"(rank_pattern: wanted a regular expression that is read here, found "\\bq_proj")"},
      {"alpha_pattern",
       {{"(?!q)._proj", 3}},
       R"(alpha_pattern: wanted a regular expression that is read here, found "(?!q)._proj")"},
      {"rank_pattern", {1}, "rank_pattern: wanted an object, found [1]"},
      {"alpha_pattern", {{"v_proj", "6"}}, "alpha_pattern.v_proj: wanted a number, found \"6\""},
      {"alpha_pattern", {{"v_proj", 0}}, "alpha_pattern.v_proj: wanted 0 < x"},
      {"alpha_pattern",
       {{"v_proj", 7.5}},
       "alpha_pattern: wanted scales (lora_alpha / r) that differ by powers of two, since all "
       "layers have one scale here, which would round other ones; found 2 of "
       "model.layers.0.mlp.down_proj and 2.5 of model.layers.0.self_attn.v_proj"},
      {"init_lora_weights", "pissa_niter_4", "path_initial_model_for_weight_conversion"},
      {"init_lora_weights", "olora", "this start changes the base"},
      {"init_lora_weights", "corda", "this start changes the base"},
      {"init_lora_weights", "lora_ga", "this start changes the base"},
      {"init_lora_weights", "loftq", "init_lora_weights: wanted true, false, \"gaussian\""},
      {"init_lora_weights", "mica", "or how the adapter is trained"},
      {"layers_to_transform", {0, -1}, "layers_to_transform: wanted numbers of layers, from 0 on"},
      {"exclude_modules", {"o_proj"}, "target_modules of adapter_config.json does not name it"},
      {"target_modules", 3, "target_modules: wanted a list of names, or a regular expression"},
      {"target_parameters", "experts", "target_parameters: wanted a list of names, found"},
      {"modules_to_save",
       {"lm_head"},
       "tensor base_model.model.lm_head.weight: missing, though modules_to_save of"},
      {"base_model_name_or_path", 3, "base_model_name_or_path: wanted text or null, found 3"},
      {"alora_invocation_tokens", {1, 2}, "(aLoRA)"},
      {"arrow_config", {{"top_k", 2}}, "(Arrow)"},
      {"kasa_config", {{"beta", 1}}, "kasa_config: wanted no such key, or null"},
      {"layer_replication", {{0, 1}}, "layer_replication: wanted no such key, or null"},
      {"lora_bias", true, "lora_bias: wanted no such key, or null, found true"},
      {"megatron_config", {{"a", 1}}, "megatron_config: wanted no such key"},
      {"monteclora_config", {{"num_samples", 8}}, "monteclora_config: wanted no such key"},
      {"trainable_token_indices", {3}, "trainable_token_indices: wanted no such key"},
      {"use_bdlora", {{"nblocks", 2}}, "use_bdlora: wanted no such key"},
      {"use_qalora", true, "(QA-LoRA)"},
      {"velora_config", {{"scale", 1}}, "(VeLoRA)"},
      {"fancy", 1, "fancy: wanted no such key, or null, found 1; a key that PEFT 0.21 does not"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.key, " ", c.value.dump()));
    AdapterContent content = AdapterContent::Of("llama");
    content.config[c.key] = c.value;
    const std::string message(Import(content, Golden("hf/llama")).message());
    EXPECT_THAT(message, HasSubstr(c.part));
    EXPECT_THAT(message, HasSubstr(scratch_ + "/bad/adapter_"));
  }
}

// PEFT takes the first key of the file, whatever its letters are. Bug it must catch: an order of
// our own gives layers the scale that another key says.
TEST_F(ImportAdapterTest, TakesTheFirstPatternThatMatches) {
  AdapterContent content = AdapterContent::Of("llama");
  content.Write(scratch_ + "/in-order");
  const auto imported = [&](const std::string& patterns) {
    json config = content.config;
    config.erase("alpha_pattern");
    std::string text = config.dump();
    text.insert(text.rfind('}'), ", \"alpha_pattern\": " + patterns);
    WriteBytes(scratch_ + "/in-order/adapter_config.json", text);
    return ImportAdapter({.from = scratch_ + "/in-order"}, content.base());
  };
  const std::string all = R"(".*": 6)", one = R"("v_proj": 7.5)";
  EXPECT_TRUE(imported("{" + all + ", " + one + "}").ok());
  EXPECT_FALSE(imported("{" + one + ", " + all + "}").ok());
}

// Bug it must catch: numbers of an adapter in half precision become other ones.
TEST_F(ImportAdapterTest, RefusesNumbersThatTheJointScaleWouldRound) {
  AdapterContent content = AdapterContent::Of("llama");
  const std::string b = Layer("self_attn.v_proj.lora_B.weight");
  content.config["alpha_pattern"] = {{"v_proj", 3}};
  content.Write(scratch_ + "/good");
  EXPECT_TRUE(ImportAdapter({.from = scratch_ + "/good"}, content.base()).ok());
  const double least = std::numeric_limits<double>::denorm_min();
  std::memcpy(&content.tensors[b].bytes[0], &least, sizeof(least));
  ExpectRefused(content, "tensor " + b + ": wanted numbers that f64 has 0.5 times as large");
  content.config["alpha_pattern"] = {{"v_proj", 12}};
  const double most = std::numeric_limits<double>::max();
  std::memcpy(&content.tensors[b].bytes[0], &most, sizeof(most));
  ExpectRefused(content, "tensor " + b + ": wanted numbers that f64 has 2 times as large");
}

// Whole names in target_modules are chosen whatever layers_to_transform says. Ends of names are
// not.
TEST_F(ImportAdapterTest, ComparesLayersAsPeft) {
  AdapterContent content = AdapterContent::Of("llama_layer");
  content.config["layers_to_transform"] = 0;
  ExpectRefused(content, "layers.0.self_attn.v_proj.lora_A.weight: missing, though target_modules");
  content.config["layers_to_transform"] = nullptr;
  ExpectRefused(content, "layers.0.self_attn.v_proj.lora_A.weight: missing, though target_modules");
  content.config["layers_to_transform"] = 0;
  content.config["target_modules"] = {"model.layers.1.self_attn.v_proj"};
  content.Write(scratch_ + "/good");
  EXPECT_TRUE(ImportAdapter({.from = scratch_ + "/good"}, content.base()).ok());
}

// Bug it must catch: PEFT gives layers adapters of first values that the file lacks, or passes over
// layers of the file.
TEST_F(ImportAdapterTest, ComparesLayersWithExpressions) {
  AdapterContent content = AdapterContent::Of("llama_layer");
  content.config["layers_to_transform"] = nullptr;
  content.config["target_modules"] = R"(model\.layers\.1\..*\.(v|x)_proj)";
  content.Write(scratch_ + "/good");
  EXPECT_TRUE(ImportAdapter({.from = scratch_ + "/good"}, content.base()).ok());
  content.config["target_modules"] = R"(.*\.(v|x)_proj)";
  ExpectRefused(content, "layers.0.self_attn.v_proj.lora_A.weight: missing, though target_modules");
  content.config["exclude_modules"] = R"(.*\.0\..*)";
  std::filesystem::remove_all(scratch_ + "/good");
  content.Write(scratch_ + "/good");
  EXPECT_TRUE(ImportAdapter({.from = scratch_ + "/good"}, content.base()).ok());
  content.config["target_modules"] = R"(.*\.x_proj)";
  ExpectRefused(content, "target_modules of adapter_config.json does not name it");
}

TEST_F(ImportAdapterTest, NamesAllKeysTogether) {
  AdapterContent content = AdapterContent::Of("llama");
  content.config["bias"] = "all";
  content.config["lora_bias"] = true;
  const std::string message(Import(content, content.base()).message());
  EXPECT_THAT(message, HasSubstr("\nbias: "));
  EXPECT_THAT(message, HasSubstr("\nlora_bias: "));
}

// What these keys say concerns how an adapter came to be, or how PEFT runs it.
TEST_F(ImportAdapterTest, TakesWhatChangesNothing) {
  const std::pair<const char*, json> cases[] = {
      {"auto_mapping", {{"base_model_class", "LlamaForCausalLM"}}},
      {"peft_version", "0.99.0"},
      {"revision", "main"},
      {"inference_mode", false},
      {"megatron_core", "other"},
      {"qalora_group_size", 32},
      {"runtime_config", {{"ephemeral_gpu_offload", true}}},
      {"loftq_config", {{"loftq_bits", 4}}},
      {"eva_config", {{"rho", 1.0}}},
      {"corda_config", {{"verbose", true}}},
      {"lora_ga_config", {{"stable_gamma", 16}}},
      {"ensure_weight_tying", true},
      {"task_type", nullptr},
      {"init_lora_weights", "gaussian"},
      {"init_lora_weights", "orthogonal"},
      {"init_lora_weights", "eva"},
      {"init_lora_weights", false},
      {"rank_pattern", {{"q_proj", 3}}},
      {"rank_pattern", {{R"(\bq_proj)", 3}}},  // Not read, and what holds without it.
      {"alpha_pattern", {{"q_proj", 6}}},
      {"alpha_pattern", {{"(?!q)._proj", 6}, {R"(\w+)", 6}}},
      {"target_modules", R"(.*\.(?:[qkvo]|gate|up|down)_proj)"},
      {"target_modules", R"((?!lm_head).*\b\w+_proj)"},  // Not read: the file is believed.
      {"exclude_modules", "lm_head|.*embed.*"},
      {"layers_to_transform", {0, 1}},
      {"layers_to_transform", json::array()},
      {"layers_pattern", "layers"},
      {"target_modules", "all-linear"},
      {"target_modules",
       {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}},
      {"merge_weights", false},  // Of early releases.
      {"enable_lora", nullptr}};
  for (const auto& [key, value] : cases) {
    SCOPED_TRACE(absl::StrCat(key, " ", value.dump()));
    std::filesystem::remove_all(scratch_ + "/to");
    AdapterContent content = AdapterContent::Of("llama");
    content.config[key] = value;
    content.Write(scratch_ + "/good");
    const auto imported = ImportAdapter({.from = scratch_ + "/good"}, content.base());
    EXPECT_TRUE(imported.ok()) << imported.status();
  }
}

TEST_F(ImportAdapterTest, RefusesTensorsThatAreNotTheAdapters) {
  const std::string a = Layer("self_attn.q_proj.lora_A.weight"),
                    b = Layer("self_attn.q_proj.lora_B.weight");
  const AdapterContent good = AdapterContent::Of("llama");
  AdapterContent content = good;
  content.tensors.erase(b);
  ExpectRefused(content, "adapter_model.safetensors: tensor " + b +
                             ": missing beside others of its layer; wanted the shape [24, 3]");
  content = good;
  content.tensors.erase(a), content.tensors.erase(b);
  ExpectRefused(content, "tensor " + a + ": missing, though target_modules of");
  content = good;
  content.config["target_modules"].erase(0);
  ExpectRefused(content, "target_modules of adapter_config.json does not name it, so PEFT would");
  content = good;
  content.tensors[a].shape = {4, 9};
  ExpectRefused(content, "tensor " + a + ": wanted the shape [3, 12], by r of adapter_config.json");
  content = good;
  content.config["r"] = 4;
  ExpectRefused(content, "wanted the shape [4, ");
  content = good;
  content.tensors[a].dtype = HfDType::kI64;
  ExpectRefused(content, "tensor " + a + ": wanted F64, F32, BF16 or F16, found I64");
  content = good;
  content.tensors["model.layers.0.self_attn.q_proj.lora_A.weight"] = content.tensors[a];
  ExpectRefused(content, "wanted a name that begins with base_model.model., as PEFT writes it");
  content = good;
  for (const char* other :
       {"model.layers.7.self_attn.q_proj.lora_A.weight", "lm_head.lora_A.weight",
        "lm_head.base_layer.weight", "model.embed_tokens.lora_embedding_A",
        "model.layers.0.self_attn.q_proj.lora_A.default.weight",
        "model.layers.0.self_attn.q_proj.lora_B.bias"}) {
    content = good;
    content.tensors[absl::StrCat(kPrefix, other)] = content.tensors[a];
    ExpectRefused(content, absl::StrCat("tensor ", kPrefix, other, ": wanted an adapter of a"));
  }
  // A magnitude without use_dora is another tensor, and use_dora without magnitudes lacks one.
  content = AdapterContent::Of("llama_dora");
  content.config["use_dora"] = false;
  ExpectRefused(content, ".lora_magnitude_vector: wanted no magnitudes, because use_dora of");
  content = good;
  content.config["use_dora"] = true;
  ExpectRefused(content, ".lora_magnitude_vector: missing beside others of its layer");
  // A bias of a module that is trained as a whole.
  content = AdapterContent::Of("gpt3_dora");
  content.tensors.erase(absl::StrCat(kPrefix, "transformer.ln_f.bias"));
  ExpectRefused(content, "transformer.ln_f.bias: missing beside others of its layer");
  content = AdapterContent::Of("gpt3_dora");
  content.config["modules_to_save"] = {"c_fc"};
  ExpectRefused(content,
                "modules_to_save of adapter_config.json does not name it, so PEFT would "
                "load it and not train it");
  content = AdapterContent::Of("gpt3_dora");
  content.config["fan_in_fan_out"] = false;
  ExpectRefused(content, "fan_in_fan_out: wanted true");
  content.tensors.clear();
  ExpectRefused(content, "wanted adapters of layers of");
}

TEST_F(ImportAdapterTest, RefusesExpertsInAnotherForm) {
  const std::string inner = Layer("mlp.experts.base_layer.lora_A.weight");
  const AdapterContent good = AdapterContent::Of("mixtral_experts");
  AdapterContent content = good;
  content.config["target_parameters"] = {"experts.down_proj"};
  ExpectRefused(content, "mlp.experts.base_layer.lora_A.weight: wanted an adapter of a linear");
  content = good;
  content.tensors.erase(inner);
  ExpectRefused(content, "tensor " + inner + ": missing beside others of its layer; wanted the " +
                             "shape [10, 12]");
  content = good;
  content.config["use_dora"] = true;
  ExpectRefused(content, "use_dora: wanted false beside target_parameters, found true");
  // Adapters of each expert, as of transformers 4.
  content = good;
  content.tensors[Layer("mlp.experts.0.w1.lora_A.weight")] = content.tensors.begin()->second;
  ExpectRefused(content, "mlp.experts.0.w1.lora_A.weight: wanted an adapter of a linear layer");
}

// PEFT gives the tensors of these layers to experts, or trains a copy of what is tied here.
TEST_F(ImportAdapterTest, RefusesWhatPeftMeansOtherwise) {
  AdapterContent content = AdapterContent::Of("deepseek_v3_experts");
  content.tensors[Layer("mlp.down_proj.lora_A.weight")] = content.tensors.begin()->second;
  ExpectRefused(content, "PEFT would give this adapter to the experts");
  content = AdapterContent::Of("llama_layer");
  FileTensor embedding = DirectoryContent::Of(content.base()).tensors["model.embed_tokens.weight"];
  content.tensors[absl::StrCat(kPrefix, "model.embed_tokens.weight")] = embedding;
  ExpectRefused(content, "PEFT would train a copy of the embedding, and leave the head");
  content = AdapterContent::Of("llama_layer");
  content.tensors[absl::StrCat(kPrefix, "lm_head.weight")] = embedding;
  ExpectRefused(content, "lm_head.weight: wanted an adapter of a linear layer");
}

TEST_F(ImportAdapterTest, RefusesAnotherBase) {
  const AdapterContent content = AdapterContent::Of("llama");
  const auto message = [&](const std::string& base) {
    return std::string(Import(content, base).message());
  };
  EXPECT_THAT(
      message(Golden("hf/gpt3")),
      HasSubstr("wanted adapters of layers of " + Golden("hf/gpt3") +
                ", found none in 28 tensors; the first is base_model.model.model.layers.0"));
  EXPECT_THAT(message(Golden("nf4/base")), HasSubstr("and the sizes of the base"));
  EXPECT_THAT(message(Golden("hf/nemotron_h")), HasSubstr("found none in 28 tensors"));
  // The name in the file is none of a directory here.
  EXPECT_THAT(message(""), HasSubstr("--base: wanted the directory of the model that"));
  EXPECT_THAT(message(""), HasSubstr("is hf/llama, which is no directory here"));
  EXPECT_TRUE(absl::IsNotFound(Import(content, scratch_ + "/none", absl::StatusCode::kNotFound)));
}

TEST_F(ImportAdapterTest, NamesNumbersThatAreNotFinite) {
  for (const double number : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    AdapterContent content = AdapterContent::Of("llama");
    const std::string b = Layer("self_attn.q_proj.lora_B.weight");
    std::memcpy(&content.tensors[b].bytes[8 * (5 * 3 + 2)], &number, sizeof(number));
    ExpectRefused(content,
                  "tensor " + b + ": wanted finite numbers, found NaN or infinity at [5, 2]");
    content = AdapterContent::Of("mixtral_experts");
    const std::string experts = Layer("mlp.experts.lora_B.weight");
    std::memcpy(&content.tensors[experts].bytes[8 * (10 + 7)], &number, sizeof(number));
    ExpectRefused(content,
                  "tensor " + experts + ": wanted finite numbers, found NaN or infinity at [1, 7]");
  }
}

TEST_F(ImportAdapterTest, RefusesOtherFiles) {
  const AdapterContent content = AdapterContent::Of("llama");
  const std::string from = scratch_ + "/bad", base = content.base();
  const auto refusal = [&] { return ImportAdapter({.from = from}, base).status(); };
  content.Write(from);
  std::filesystem::rename(from + "/adapter_model.safetensors", from + "/adapter_model.bin");
  EXPECT_THAT(
      std::string(refusal().message()),
      HasSubstr("adapter_model.bin: wanted adapter_model.safetensors, found a pickle file"));
  std::filesystem::remove(from + "/adapter_model.bin");
  WriteBytes(from + "/training_args.bin", "of another program");
  EXPECT_TRUE(absl::IsNotFound(refusal())) << refusal();
  WriteBytes(from + "/adapter_model.safetensors", "12345678");
  EXPECT_TRUE(absl::IsDataLoss(refusal())) << refusal();
  content.Write(from);
  WriteBytes(from + "/adapter_config.json", "[]");
  EXPECT_TRUE(absl::IsDataLoss(refusal())) << refusal();
  EXPECT_THAT(std::string(refusal().message()),
              HasSubstr("adapter_config.json: wanted a JSON obj"));
  WriteBytes(from + "/adapter_config.json", "{\"r\": 1, \"r\": 2}");
  EXPECT_TRUE(absl::IsDataLoss(refusal())) << refusal();
  std::filesystem::remove(from + "/adapter_config.json");
  EXPECT_TRUE(absl::IsNotFound(refusal())) << refusal();
  content.Write(from);
  WriteBytes(scratch_ + "/file", "1");
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ImportAdapter({.from = from, .to = scratch_ + "/file"}, base).status()));
}

// As if a job had trained the adapter: no program needs to know that no job did.
TEST_F(ImportAdapterTest, WritesARun) {
  const std::string run = scratch_ + "/run";
  const auto imported =
      ImportAdapter({.from = Golden("peft/llama_layer"), .to = run}, Golden("hf/llama_tied"));
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(*ListDirectory(run), ElementsAre("epoch-1"));
  EXPECT_THAT(*ListDirectory(run + "/epoch-1"), ElementsAre("base", "lineage.json", "step-0"));
  const auto found = FindCheckpoint(run);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->checkpoint->path(), run + "/epoch-1/step-0");
  EXPECT_EQ(found->checkpoint->manifest().tensors.size(), 2u) << "the adapter alone";
  ASSERT_NE(found->checkpoint->base(), nullptr);
  EXPECT_EQ(found->checkpoint->base()->tensors.size(), 20u);
  EXPECT_EQ(imported->trained_parameters, 40u);
}

// Other dtypes are those that the checkpoint has, and F16 becomes f32. What DoRA adds to the norms
// has the digits of f32. All come back as they were.
TEST_F(ImportAdapterTest, KeepsDTypes) {
  const std::pair<HfDType, DType> dtypes[] = {
      {HfDType::kF32, DType::kF32}, {HfDType::kBF16, DType::kBF16}, {HfDType::kF16, DType::kF32}};
  for (const auto& [dtype, kept] : dtypes) {
    SCOPED_TRACE(Name(dtype));
    AdapterContent content = AdapterContent::Of("llama_dora");
    for (auto& [name, tensor] : content.tensors) tensor = As(dtype, tensor);
    const std::string at = absl::StrCat(scratch_, "/", Name(dtype));
    content.Write(at);
    const auto imported = ImportAdapter({.from = at, .to = at + "-run"}, content.base());
    ASSERT_TRUE(imported.ok()) << imported.status();
    const auto found = FindCheckpoint(at + "-run");
    ASSERT_TRUE(found.ok()) << found.status();
    const std::string layer = "model.layers.0.mlp.down_proj";
    const auto of = [&](const std::string& name) {
      return found->checkpoint->Find(name, TensorKind::kParameter)->dtype;
    };
    EXPECT_EQ(of(layer + ".lora_A.weight"), kept);
    EXPECT_EQ(of(layer + ".lora_magnitude_offset"), DType::kF32);
    EXPECT_EQ(of(layer + ".weight"), DType::kF64) << "the base has its own";
    const auto exported = ExportHf(*found->checkpoint, {.to = at + "-out", .dtype = dtype});
    ASSERT_TRUE(exported.ok()) << exported.status();
    const auto out = SafetensorsFile::Open(at + "-out/adapter_model.safetensors");
    ASSERT_TRUE(out.ok());
    ASSERT_EQ(out->tensors().size(), content.tensors.size());
    for (const auto& [name, tensor] : content.tensors) {
      std::string bytes(tensor.bytes.size(), '\0');
      ASSERT_TRUE(out->Read(out->tensors().at(name), 0, bytes.data(), bytes.size()).ok());
      EXPECT_EQ(bytes, tensor.bytes) << name;
    }
  }
}

// The tokenizer that the adapter was trained with is the one in its directory, if it has one.
TEST_F(ImportAdapterTest, KeepsTheTokenizerOfTheAdapter) {
  const AdapterContent content = AdapterContent::Of("llama");
  const std::string base = scratch_ + "/base", from = scratch_ + "/from";
  DirectoryContent::Of(content.base()).Write(base);
  WriteBytes(base + "/tokenizer.json", "of the base");
  WriteBytes(base + "/generation_config.json", "{}");
  content.Write(from);
  WriteBytes(from + "/tokenizer.json", "of the adapter");
  WriteBytes(from + "/training_args.bin", "a pickle file that nobody reads");
  const auto imported = ImportAdapter({.from = from, .to = scratch_ + "/run"}, base);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->imported.carried, ElementsAre("generation_config.json", "tokenizer.json"));
  const std::string kept = scratch_ + "/run/epoch-1/step-0/hugging_face/";
  EXPECT_EQ(*ReadFile(kept + "tokenizer.json"), "of the adapter");
  EXPECT_THAT(*ReadFile(kept + "import.json"), HasSubstr("\"base\": \"hf/llama\""));
}

// Whichever call fails, or is the last one before a power cut, the run is whole or absent.
// Some programs write the template into a file of its own, and some into that of the tokenizer.
TEST_F(ImportAdapterTest, KeepsNoTemplateOfTheBaseBesideThatOfTheAdapter) {
  const AdapterContent content = AdapterContent::Of("llama");
  const std::string base = scratch_ + "/base", from = scratch_ + "/from";
  const auto carried = [&] {
    const auto imported = ImportAdapter({.from = from}, base);
    CHECK(imported.ok()) << imported.status();
    return imported->imported.carried;
  };
  DirectoryContent::Of(content.base()).Write(base);
  for (const char* name : {"tokenizer.json", "chat_template.jinja", "generation_config.json"}) {
    WriteBytes(base + "/" + name, "of the base");
  }
  content.Write(from);
  EXPECT_THAT(carried(),
              ElementsAre("chat_template.jinja", "generation_config.json", "tokenizer.json"));
  WriteBytes(from + "/tokenizer_config.json", R"({"chat_template": "of the adapter"})");
  EXPECT_THAT(carried(),
              ElementsAre("generation_config.json", "tokenizer.json", "tokenizer_config.json"));
  WriteBytes(from + "/tokenizer.model", "of the adapter");
  EXPECT_THAT(carried(),
              ElementsAre("generation_config.json", "tokenizer.model", "tokenizer_config.json"));
}

TEST_F(ImportAdapterTest, IsCompleteOrAbsentWhateverFails) {
  const AdapterContent content = AdapterContent::Of("llama_layer");
  const std::string from = Golden("peft/llama_layer");
  const std::string to = scratch_ + "/to", graveyard = scratch_ + "-graveyard";
  for (const Fault fault : {Fault::kError, Fault::kKill, Fault::kPowerCut}) {
    bool hit = true;
    for (int at = 1; hit; ++at) {
      SCOPED_TRACE(absl::StrCat("fault ", int(fault), " at ", at));
      for (const std::string& path : {scratch_, graveyard}) {
        std::filesystem::remove_all(path);
        std::filesystem::create_directories(path);
      }
      FaultyStorage storage(fault, at, uint64_t(at), graveyard);
      const auto imported = ImportAdapter({.from = from, .to = to}, content.base(), storage);
      if (fault == Fault::kPowerCut) storage.LosePower();
      hit = storage.hit();
      ASSERT_LT(at, 400);
      if (!Exists(to)) {
        EXPECT_TRUE(hit && !imported.ok());
        const size_t left = ListDirectory(scratch_)->size();
        EXPECT_LE(left, fault == Fault::kError ? 0u : 1u);
        continue;
      }
      const auto found = FindCheckpoint(to);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_TRUE(found->checkpoint->Verify().ok());
      EXPECT_TRUE(Exists(found->checkpoint->path() + "/hugging_face/import.json"));
    }
  }
}

}  // namespace
}  // namespace trainyard::testing
