// Proves that a model directory is read as its files say, and that one whose files contradict each
// other, lack a shard, lead elsewhere or may run programs is refused by file and tensor.
#include "models/hf/model_directory.h"

#include "common/files.h"
#include "gmock/gmock.h"
#include "tests/models/hf/files.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

TEST(ModelDirectoryTest, ReadsShardsOfThePublicImplementation) {
  const auto directory = ModelDirectory::Open(SourceFile("tests/golden/safetensors/shards"));
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->config()["model_type"], "none");
  EXPECT_EQ(directory->tensors().size(), 3u);
  double value = 0;
  ASSERT_NE(directory->Find("c"), nullptr);
  ASSERT_TRUE(directory->Find("c")->Read(24, &value, sizeof(value)).ok());
  EXPECT_EQ(value, 2.5);
  EXPECT_EQ(directory->Find("d"), nullptr);
}

TEST(ModelDirectoryTest, ReadsOneFile) {
  const auto directory = ModelDirectory::Open(SourceFile("tests/golden/safetensors/types"));
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->tensors().size(), 15u);
}

// A copy of the directory with shards.
std::string Copy() {
  const std::string path = EmptyDirectory("model");
  std::filesystem::copy(SourceFile("tests/golden/safetensors/shards"), path);
  return path;
}

void ExpectRefused(const std::string& path, absl::StatusCode code, const std::string& part) {
  const auto opened = ModelDirectory::Open(path);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), code) << opened.status();
  EXPECT_THAT(opened.status().message(), HasSubstr(part));
}

std::string Index(const std::string& weight_map) {
  return absl::StrCat(R"({"metadata": {}, "weight_map": )", weight_map, "}");
}

TEST(ModelDirectoryTest, RefusesIndexesThatContradictTheShards) {
  const std::string path = Copy(), index = path + "/" + kHfIndexName;
  const std::string one = "model-00001-of-00002.safetensors",
                    two = "model-00002-of-00002.safetensors";
  const auto refuse = [&](const std::string& text, const std::string& part) {
    WriteBytes(index, text);
    ExpectRefused(path, absl::StatusCode::kDataLoss, part);
  };
  const auto map = [](const std::string& a, const std::string& b, const std::string& c) {
    return Index(absl::StrCat("{\"a\": \"", a, "\", \"b\": \"", b, "\", \"c\": \"", c, "\"}"));
  };
  WriteBytes(index, map(one, one, two));
  EXPECT_TRUE(ModelDirectory::Open(path).ok());
  refuse(map(one, two, two), "tensor \"b\": wanted it in");
  refuse(Index(absl::StrCat("{\"a\": \"", one, "\", \"c\": \"", two, "\"}")),
         "weight_map lacks it");
  refuse(Index(absl::StrCat("{\"a\": \"", one, "\", \"b\": \"", one, "\", \"d\": \"", two, "\"}")),
         "tensor \"d\": wanted it in");
  refuse(Index("{}"), "wanted weight_map");
  refuse(Index("[]"), "wanted weight_map");
  refuse("{}", "wanted weight_map");
  refuse("[]", "wanted a JSON object");
  refuse(Index("{\"a\": 1}"), "tensor \"a\": wanted a file NAME.safetensors");
  // The file is there, but not in the directory.
  for (const std::string& name : {"../model/" + one, path + "/" + one, std::string(".."),
                                  std::string(".safetensors"), std::string("config.json")}) {
    refuse(map(name, one, two), "tensor \"a\": wanted a file NAME.safetensors");
  }
  std::filesystem::copy_file(path + "/" + one, path + "/again.safetensors");
  refuse(Index(absl::StrCat("{\"a\": \"", one, "\", \"b\": \"again.safetensors\", \"c\": \"", two,
                            "\"}")),
         "is in");
}

TEST(ModelDirectoryTest, NamesShardsThatAreMissingOrDamaged) {
  const std::string path = Copy(), shard = path + "/model-00001-of-00002.safetensors";
  const std::string bytes = *ReadFile(shard);
  WriteBytes(shard, bytes.substr(0, bytes.size() - 1));
  ExpectRefused(path, absl::StatusCode::kDataLoss, shard);
  std::filesystem::remove(shard);
  ExpectRefused(path, absl::StatusCode::kNotFound,
                "tensor \"a\": the shard model-00001-of-00002.safetensors is missing");
}

TEST(ModelDirectoryTest, RefusesDirectoriesWithoutSafetensors) {
  const std::string path = EmptyDirectory("model");
  ExpectRefused(path, absl::StatusCode::kNotFound, "config.json");
  WriteBytes(path + "/manifest.json", "{}");
  ExpectRefused(path, absl::StatusCode::kInvalidArgument, "found a Trainyard checkpoint");
  WriteBytes(path + "/config.json", "{}");
  ExpectRefused(path, absl::StatusCode::kNotFound, "wanted model.safetensors or");
  WriteBytes(path + "/pytorch_model.bin", "\x80\x02");
  ExpectRefused(path, absl::StatusCode::kInvalidArgument, "pytorch_model.bin: wanted safetensors");
  std::filesystem::copy(
      SourceFile("tests/golden/safetensors/shards"), path,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(ModelDirectory::Open(path).ok());
  WriteBytes(path + "/model.safetensors", Safetensors("{}", ""));
  ExpectRefused(path, absl::StatusCode::kInvalidArgument, "found both");
}

// A cache of downloads has links to files that are named by their contents.
TEST(ModelDirectoryTest, FollowsTheLinksOfADownloadCache) {
  const std::string blobs = Copy(), path = EmptyDirectory("snapshot");
  const auto names = ListDirectory(blobs);
  for (const std::string& name : *names) {
    std::filesystem::create_symlink("../model/" + name, path + "/" + name);
  }
  EXPECT_TRUE(ModelDirectory::Open(path).ok());
  std::filesystem::remove(path + "/config.json");
  std::filesystem::create_symlink("/dev/zero", path + "/config.json");
  ExpectRefused(path, absl::StatusCode::kInvalidArgument, "not a regular file");
}

TEST(ModelDirectoryTest, RefusesConfigsThatAreNoJsonObject) {
  const std::string path = Copy();
  const std::pair<std::string, std::string> texts[] = {
      {"", "wanted JSON, found an empty text"},
      {"[]", "wanted a JSON object, found another value"},
      {"{\"a\": 1,\n\"a\": 2}",
       "wanted JSON, found the key \"a\" twice, the second time in line 2"},
      {"{\n  \"a\": \"\xff\"}", "wanted JSON, found something else, \"\"?\", in line 2"}};
  for (const auto& [text, error] : texts) {
    WriteBytes(path + "/config.json", text);
    ExpectRefused(path, absl::StatusCode::kDataLoss, "config.json: " + error);
  }
}

}  // namespace
}  // namespace trainyard::testing
