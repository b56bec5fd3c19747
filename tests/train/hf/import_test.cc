// Proves that an import makes the checkpoint that the directory describes, or nothing: whatever is
// wrong with a tensor is refused by its name, and a write that fails leaves nothing at the target.
// What an export writes is imported as the same, in every dtype.
#include "train/hf/import.h"

#include <cmath>
#include <cstring>

#include "common/files.h"
#include "common/half.h"
#include "common/python_json.h"
#include "gmock/gmock.h"
#include "tests/train/checkpoint/faulty_storage.h"
#include "tests/train/hf/directory.h"
#include "train/checkpoint/load.h"
#include "train/hf/export.h"
#include "train/hf/pending_directory.h"

namespace trainyard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_checkpoint::Fault;
using testing_checkpoint::FaultyStorage;

constexpr char kEmbedding[] = "model.embed_tokens.weight", kHead[] = "lm_head.weight";

DirectoryContent Llama() { return DirectoryContent::Of(SourceFile("tests/golden/hf/llama")); }
DirectoryContent Tied() { return DirectoryContent::Of(SourceFile("tests/golden/hf/llama_tied")); }

Checkpoint Open(const std::string& path) {
  auto checkpoint = Checkpoint::Open(path);
  CHECK(checkpoint.ok()) << checkpoint.status();
  return *std::move(checkpoint);
}

std::string DigestOf(const std::string& path) { return *Open(path).Digest(); }

class HfImport : public ::testing::Test {
 protected:
  // Imports the directory of this content. Returns the checkpoint's path.
  std::string Import(const DirectoryContent& content, const std::string& name = "model") const {
    content.Write(scratch_ + "/" + name);
    const std::string to = scratch_ + "/" + name + "-imported";
    const auto imported = ImportHf({scratch_ + "/" + name, to});
    CHECK(imported.ok()) << imported.status();
    return to;
  }

  void ExpectRefused(const DirectoryContent& content, const std::string& part) const {
    content.Write(scratch_ + "/bad");
    const auto imported = ImportHf({scratch_ + "/bad", scratch_ + "/refused"});
    EXPECT_EQ(imported.status().code(), absl::StatusCode::kInvalidArgument) << imported.status();
    EXPECT_THAT(imported.status().message(), HasSubstr(part));
    EXPECT_THAT(*ListDirectory(scratch_), ElementsAre("bad"));
  }

  const std::string scratch_ = EmptyDirectory("scratch");
};

TEST_F(HfImport, RefusesTensorsThatAreNotTheModels) {
  DirectoryContent content = Llama();
  content.tensors.erase("model.layers.1.mlp.up_proj.weight");
  ExpectRefused(content, "tensor model.layers.1.mlp.up_proj.weight: missing");

  content = Llama();
  content.tensors["model.layers.2.extra"] = content.tensors["model.norm.weight"];
  ExpectRefused(content, "tensor model.layers.2.extra: the model that config.json describes has");

  content = Llama();
  std::swap(content.tensors[kEmbedding].shape[0], content.tensors[kEmbedding].shape[1]);
  ExpectRefused(content,
                "tensor model.embed_tokens.weight: wanted the shape [13, 12], as config."
                "json says, found [12, 13]");

  content = Llama();
  content.tensors[kHead].dtype = HfDType::kI64;
  ExpectRefused(content, "tensor lm_head.weight: wanted F64, F32, BF16 or F16, found I64");

  content = Llama();
  content.config["num_hidden_layers"] = 1000;
  ExpectRefused(content, "parameters, the tensors have");
}

// A few bytes of config.json describe so many experts that a list of matrices takes gigabytes.
TEST_F(HfImport, RefusesMoreMatricesThanAnyModelHas) {
  DirectoryContent content = DirectoryContent::Of(SourceFile("tests/golden/hf/mixtral"));
  content.config["num_hidden_layers"] = 200;
  content.config["num_local_experts"] = 4096;
  ExpectRefused(content, "matrices and vectors; wanted at most 1000000");
}

// The rename at the end would fail, after hours of writing.
TEST_F(HfImport, RefusesATargetThatCannotBeReplaced) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(scratch_);
  const absl::Status status = ImportHf({SourceFile("tests/golden/hf/llama"), "."}).status();
  EXPECT_THAT(status.message(), HasSubstr(".: wanted a directory by its name"));
  std::filesystem::current_path(before);
  EXPECT_THAT(*ListDirectory(scratch_), ElementsAre());
}

TEST_F(HfImport, RefusesAMountPointBeforeItWrites) {
  const auto imported = ImportHf({SourceFile("tests/golden/hf/llama"), "/proc"});
  EXPECT_TRUE(absl::IsFailedPrecondition(imported.status())) << imported.status();
  EXPECT_THAT(std::string(imported.status().message()), HasSubstr("found a mount point; name a"));
}

// Processes in two containers may have the same number, and a killed one leaves its directory.
TEST_F(HfImport, PendingDirectoriesHaveNamesOfTheirOwn) {
  const std::string target = scratch_ + "/model";
  auto first = PendingDirectory::Create(target, LocalStorage());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = PendingDirectory::Create(target, LocalStorage());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(first->path(), second->path());
  EXPECT_THAT(second->left(), ElementsAre(first->path()));
  const auto imported = ImportHf({SourceFile("tests/golden/hf/llama"), target});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->left, ::testing::UnorderedElementsAre(first->path(), second->path()));
}

TEST_F(HfImport, ExportsNoInfinityForANumberThatF16DoesNotHave) {
  for (const double number : {65519.0, 65520.0, -65520.0}) {
    DirectoryContent content = Llama();
    std::memcpy(content.tensors[kHead].bytes.data(), &number, sizeof(number));
    const std::string name = absl::StrCat("of_", number);
    const auto exported = ExportHf(Open(Import(content, name)),
                                   {.to = scratch_ + "/f16" + name, .dtype = HfDType::kF16});
    if (number == 65519.0) {
      EXPECT_TRUE(exported.ok()) << exported.status();
    } else {
      EXPECT_THAT(exported.status().message(), HasSubstr("lm_head.weight: wanted numbers below"));
      EXPECT_FALSE(std::filesystem::exists(scratch_ + "/f16" + name));
    }
  }
}

TEST_F(HfImport, RefusesConfigsByKey) {
  DirectoryContent content = Llama();
  content.config["hidden_act"] = "relu";
  ExpectRefused(content, "config.json:\nhidden_act: wanted \"silu\"");
}

// `transformers` would use both of two tensors that are said to be one.
TEST_F(HfImport, RefusesATiedHeadThatIsAnotherOne) {
  DirectoryContent content = Tied();
  const std::string wanted = DigestOf(Import(content, "without"));
  content.tensors[kHead] = content.tensors[kEmbedding];
  EXPECT_EQ(DigestOf(Import(content, "with")), wanted);
  std::filesystem::remove_all(scratch_);
  std::filesystem::create_directories(scratch_);
  content.tensors[kHead].bytes.back() ^= 1;
  ExpectRefused(content, "tensor lm_head.weight: wanted the values of model.embed_tokens.weight");
}

TEST_F(HfImport, IgnoresTheTablesOfEarlyReleases) {
  DirectoryContent content = Llama();
  const std::string wanted = DigestOf(Import(content, "without"));
  content.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] =
      content.tensors["model.norm.weight"];
  EXPECT_EQ(DigestOf(Import(content, "with")), wanted);
}

// OpenAI's public directories of GPT-2: without the name of the model around the blocks, and with
// the masks.
TEST_F(HfImport, ReadsTensorsOfGpt2WithoutTheirPrefix) {
  DirectoryContent content = DirectoryContent::Of(SourceFile("tests/golden/hf/gpt3_tied"));
  const std::string wanted = DigestOf(Import(content, "with"));
  DirectoryContent released{.config = content.config, .tensors = {}};
  for (const auto& [name, tensor] : content.tensors) {
    released.tensors[name.substr(std::string("transformer.").size())] = tensor;
  }
  released.tensors["h.1.attn.bias"] = {HfDType::kF32, {1, 1, 1, 1}, std::string(4, '\0')};
  released.tensors[kHead] = released.tensors["wte.weight"];
  EXPECT_EQ(DigestOf(Import(released, "without")), wanted);
  std::filesystem::remove_all(scratch_);
  std::filesystem::create_directories(scratch_);
  released.tensors["transformer.wpe.weight"] = released.tensors["wpe.weight"];
  ExpectRefused(released, "tensor wpe.weight: the model that config.json");
}

// DeepSeek-V3's public directory has a layer more, which predicts further tokens.
TEST_F(HfImport, LeavesOutFurtherLayersWhereTheFamilyMayHaveThem) {
  DirectoryContent content = DirectoryContent::Of(SourceFile("tests/golden/hf/deepseek_v3"));
  const std::string wanted = DigestOf(Import(content, "without"));
  content.config["num_nextn_predict_layers"] = 1;
  content.tensors["model.layers.3.eh_proj.weight"] = content.tensors["model.norm.weight"];
  EXPECT_EQ(DigestOf(Import(content, "with")), wanted);
  std::filesystem::remove_all(scratch_);
  std::filesystem::create_directories(scratch_);
  content.config["num_nextn_predict_layers"] = 0;
  ExpectRefused(content, "tensor model.layers.3.eh_proj.weight: the model that config.json");
}

// Nemotron 3's have names of their own.
TEST_F(HfImport, LeavesOutFurtherLayersOfOtherNames) {
  DirectoryContent content = DirectoryContent::Of(SourceFile("tests/golden/hf/nemotron_h"));
  const std::string wanted = DigestOf(Import(content, "without"));
  content.config["num_nextn_predict_layers"] = 1;
  content.tensors["mtp.layers.0.norm.weight"] = content.tensors["backbone.norm_f.weight"];
  EXPECT_EQ(DigestOf(Import(content, "with")), wanted);
  std::filesystem::remove_all(scratch_);
  std::filesystem::create_directories(scratch_);
  content.config["num_nextn_predict_layers"] = 0;
  ExpectRefused(content, "tensor mtp.layers.0.norm.weight: the model that config.json");
}

// The other directory has what `transformers` makes of the quantised one (make_quantized.py).
TEST_F(HfImport, DequantizesAsThePublicImplementation) {
  for (const std::string& name : {std::string("mxfp4"), std::string("fp8")}) {
    SCOPED_TRACE(name);
    const std::string packed = SourceFile("tests/golden/quantized/" + name),
                      plain = packed + "_plain";
    const std::string of_packed = scratch_ + "/" + name, of_plain = of_packed + "_plain";
    ASSERT_TRUE(ImportHf({plain, of_plain}).ok());
    const auto imported = ImportHf({packed, of_packed});
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(DigestOf(of_packed), DigestOf(of_plain));

    const auto exported = ExportHf(Open(of_packed), {.to = of_packed + "_again"});
    ASSERT_TRUE(exported.ok()) << exported.status();
    const DirectoryContent again = DirectoryContent::Of(of_packed + "_again");
    EXPECT_FALSE(again.config.contains("quantization_config"));
    for (const auto& [tensor, values] : DirectoryContent::Of(plain).tensors) {
      EXPECT_EQ(again.tensors.at(tensor).bytes, values.bytes) << tensor;
    }
  }
}

TEST_F(HfImport, RefusesDamagedBlockFp8) {
  const DirectoryContent packed = DirectoryContent::Of(SourceFile("tests/golden/quantized/fp8"));
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  DirectoryContent content = packed;
  content.tensors.erase(name + "_scale_inv");
  ExpectRefused(content, "tensor " + name + "_scale_inv: missing beside a tensor of F8_E4M3");
  content = packed;
  content.tensors[name + "_scale_inv"].shape = {1, 2};
  ExpectRefused(content, "_scale_inv: wanted the shape [2, 1]");
  content = packed;
  content.tensors[name + "_scale_inv"].dtype = HfDType::kI32;
  ExpectRefused(content, "_scale_inv: wanted F32 or BF16, found I32");
  content = packed;
  content.tensors["model.norm.weight"].dtype = HfDType::kF8E4M3;
  content.tensors["model.norm.weight"].bytes.resize(8);
  content.tensors["model.norm.weight_scale_inv"] = {HfDType::kF32, {1}, "1234"};
  ExpectRefused(content, "tensor model.norm.weight: wanted a matrix of one parameter");
}

TEST_F(HfImport, RefusesDamagedMxfp4) {
  const DirectoryContent packed = DirectoryContent::Of(SourceFile("tests/golden/quantized/mxfp4"));
  const std::string name = "model.layers.0.mlp.experts.down_proj";
  DirectoryContent content = packed;
  content.tensors.erase(name + "_scales");
  ExpectRefused(content, "tensor " + name + ": missing");
  content = packed;
  content.tensors[name + "_scales"].shape = {3, 1, 64};
  ExpectRefused(content, "_scales: wanted the shape [3, 64, 1]");
  content = packed;
  content.tensors[name + "_blocks"].dtype = HfDType::kI8;
  ExpectRefused(content, "wanted U8 for MXFP4, found I8");
}

// The numbers of `tensor`, of F64, as halves.
FileTensor Half(const FileTensor& tensor) {
  FileTensor half{.dtype = HfDType::kF16, .shape = tensor.shape, .bytes = {}};
  for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(double)) {
    double value = 0;
    std::memcpy(&value, tensor.bytes.data() + i, sizeof(value));
    const uint16_t bits = FloatToHalf(float(value));
    half.bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return half;
}

// F16 goes through f32, and most tensors have another dtype than the last ones.
TEST_F(HfImport, DirectoriesOfSeveralDTypesComeBackAsTheyWere) {
  DirectoryContent content = Llama();
  for (auto& [name, tensor] : content.tensors) {
    if (name != kHead) tensor = Half(tensor);
  }
  const std::string imported = Import(content);
  EXPECT_EQ(Open(imported).Find(kEmbedding, TensorKind::kParameter)->dtype, DType::kF32);
  const auto exported = ExportHf(Open(imported), {.to = scratch_ + "/again"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const DirectoryContent again = DirectoryContent::Of(scratch_ + "/again");
  ASSERT_EQ(again.tensors.size(), content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) {
    EXPECT_EQ(again.tensors.at(name).dtype, tensor.dtype) << name;
    EXPECT_EQ(again.tensors.at(name).bytes, tensor.bytes) << name;
  }
  EXPECT_EQ(again.config["dtype"], "float16");
}

TEST_F(HfImport, ExportsWriteTheDTypeThatIsAskedFor) {
  const std::string imported = Import(Llama());
  for (const HfDType dtype : {HfDType::kF32, HfDType::kBF16, HfDType::kF16}) {
    const std::string to = absl::StrCat(scratch_, "/", Name(dtype));
    const auto exported = ExportHf(Open(imported), {.to = to, .dtype = dtype});
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_EQ(exported->dtype, dtype);
    for (const auto& [name, tensor] : DirectoryContent::Of(to).tensors) {
      EXPECT_EQ(tensor.dtype, dtype) << name;
    }
  }
}

TEST_F(HfImport, CarriesTheTokenizersFiles) {
  Llama().Write(scratch_ + "/model");
  WriteBytes(scratch_ + "/model/tokenizer.json", "{\"a\": \"\xff\"}");
  WriteBytes(scratch_ + "/model/generation_config.json", "{}");
  WriteBytes(scratch_ + "/model/modeling_llama.py", "import os");
  const auto imported = ImportHf({scratch_ + "/model", scratch_ + "/imported"});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->carried, ElementsAre("generation_config.json", "tokenizer.json"));
  const auto exported = ExportHf(Open(scratch_ + "/imported"), {.to = scratch_ + "/exported"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(
      *ListDirectory(scratch_ + "/exported"),
      ElementsAre("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"));
  EXPECT_EQ(*ReadFile(scratch_ + "/exported/tokenizer.json"), "{\"a\": \"\xff\"}");
}

// Bug it must catch: NaN or infinity in a tensor of any form is imported, and the first loss is
// NaN.
TEST_F(HfImport, NamesNumbersThatAreNotFinite) {
  struct Case {
    const char* directory;
    const char* tensor;
    size_t element;
    const char* place;
  };
  for (const Case& c :
       {Case{"llama", "model.layers.1.mlp.up_proj.weight", 25, "[2, 1]"},
        Case{"llama", "model.norm.weight", 3, "[3]"},
        Case{"gpt3", "transformer.h.0.mlp.c_fc.weight", 21, "[1, 1]"},  // Transposed.
        Case{"gpt_oss", "model.layers.0.mlp.experts.gate_up_proj", 171, "[1, 0, 3]"}}) {
    for (const double number : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      SCOPED_TRACE(absl::StrCat(c.tensor, " ", number));
      DirectoryContent content =
          DirectoryContent::Of(SourceFile(absl::StrCat("tests/golden/hf/", c.directory)));
      std::memcpy(&content.tensors.at(c.tensor).bytes[c.element * sizeof(number)], &number,
                  sizeof(number));
      const std::string wanted = absl::StrCat(
          "tensor ", c.tensor, ": wanted finite numbers, found NaN or infinity at ", c.place);
      ExpectRefused(content, wanted);
      // Also where nothing is written.
      EXPECT_THAT(ImportHf({scratch_ + "/bad"}).status().message(), HasSubstr(wanted));
    }
  }
}

TEST_F(HfImport, NamesInfinityOfF16) {
  DirectoryContent content = Llama();
  FileTensor& norm = content.tensors.at("model.norm.weight");
  norm.dtype = HfDType::kF16;
  norm.bytes = std::string("\0\x3c", 2) + std::string("\0\x7c", 2) + std::string(20, '\0');
  ExpectRefused(content,
                "tensor model.norm.weight: wanted finite numbers, found NaN or infinity at [1]");
}

TEST_F(HfImport, NamesInfinityOfMxfp4) {
  DirectoryContent content = DirectoryContent::Of(SourceFile("tests/golden/quantized/mxfp4"));
  content.tensors.at("model.layers.0.mlp.experts.gate_up_proj_scales").bytes[0] = char(255);
  ExpectRefused(content, "tensor model.layers.0.mlp.experts.gate_up_proj: wanted finite numbers");
}

// The checkpoint keeps what the user had ignored, and an export has it.
TEST_F(HfImport, KeepsIgnoredKeys) {
  DirectoryContent content = Llama();
  content.config["fancy"] = {{"depth", 3}};
  ExpectRefused(content, "fancy: wanted no such key");
  const std::string to = scratch_ + "/imported";
  const auto imported = ImportHf({scratch_ + "/bad", to, {"fancy"}});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(*ReadFile(to + "/hugging_face/import.json"), HasSubstr("\"fancy\""));
  const auto exported = ExportHf(Open(to), {.to = scratch_ + "/exported"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->changed_keys, ElementsAre());
  EXPECT_EQ(DirectoryContent::Of(scratch_ + "/exported").config, content.config);
}

// In the notation of the import: Python's bare words, or the objects of later releases.
TEST_F(HfImport, ExportsConfigJsonAsItWas) {
  for (const char* name : {"llama", "gemma3", "gpt_oss", "nemotron_h", "deepseek_v3", "mixtral"}) {
    SCOPED_TRACE(name);
    const std::string from = SourceFile(absl::StrCat("tests/golden/hf/", name));
    DirectoryContent::Of(from).Write(scratch_ + "/" + name);
    const nlohmann::json config = DirectoryContent::Of(from).config;
    for (const bool bare : {false, true}) {
      const std::string text = bare ? DumpPythonJson(config, 2) : config.dump(2);
      const std::string at = absl::StrCat(scratch_, "/", name);
      WriteBytes(at + "/config.json", text);
      const std::string to = absl::StrCat(at, "-imported-", bare), out = to + "-exported";
      ASSERT_TRUE(ImportHf({at, to}).ok());
      const auto exported = ExportHf(Open(to), {.to = out});
      ASSERT_TRUE(exported.ok()) << exported.status();
      EXPECT_THAT(exported->changed_keys, ElementsAre());
      EXPECT_EQ(*ReadFile(out + "/config.json"), text + "\n");
    }
  }
}

TEST_F(HfImport, ReplacesNothing) {
  const std::string from = SourceFile("tests/golden/hf/llama"), to = scratch_ + "/to";
  std::filesystem::create_directories(to);
  EXPECT_TRUE(ImportHf({from, to + "/"}).ok());  // An empty directory.
  const std::string digest = DigestOf(to);
  EXPECT_THAT(ImportHf({from, to}).status().message(), HasSubstr("empty directory; found files"));
  EXPECT_EQ(DigestOf(to), digest);
  WriteBytes(scratch_ + "/file", "1");
  EXPECT_THAT(ImportHf({from, scratch_ + "/file"}).status().message(), HasSubstr("something else"));
  EXPECT_THAT(ImportHf({from, scratch_ + "/no/such"}).status().message(),
              HasSubstr("there is no directory"));
  EXPECT_THAT(*ListDirectory(scratch_), ElementsAre("file", "to"));
}

// Whichever call fails, or is the last one before a power cut, the checkpoint is whole or absent.
TEST_F(HfImport, IsCompleteOrAbsentWhateverFails) {
  const std::string from = SourceFile("tests/golden/hf/llama_tied");
  const std::string to = scratch_ + "/to", graveyard = scratch_ + "-graveyard";
  for (const Fault fault : {Fault::kError, Fault::kKill, Fault::kPowerCut}) {
    bool hit = true;
    for (int at = 1; hit; ++at) {
      SCOPED_TRACE(absl::StrCat("fault ", int(fault), " at ", at));
      std::filesystem::remove_all(scratch_);
      std::filesystem::remove_all(graveyard);
      std::filesystem::create_directories(scratch_);
      std::filesystem::create_directories(graveyard);
      FaultyStorage storage(fault, at, uint64_t(at), graveyard);
      const auto imported = ImportHf({from, to}, storage);
      if (fault == Fault::kPowerCut) storage.LosePower();
      hit = storage.hit();
      ASSERT_LT(at, 200);
      if (!Exists(to)) {
        EXPECT_TRUE(hit && !imported.ok());
        // After an error that lets the program go on, nothing is left beside the target either.
        const size_t left = ListDirectory(scratch_)->size();
        EXPECT_LE(left, fault == Fault::kError ? 0u : 1u);
        continue;
      }
      const auto checkpoint = Checkpoint::Open(to);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
      EXPECT_TRUE(checkpoint->Verify().ok());
      EXPECT_TRUE(Exists(to + "/hugging_face/import.json"));
    }
  }
}

}  // namespace
}  // namespace trainyard::testing
