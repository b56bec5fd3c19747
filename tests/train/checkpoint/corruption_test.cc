// Proves that no damage to a checkpoint gets into a run: thousands of random changes to its files
// are all refused before use, naming a file, and the checkpoint before it is taken instead. A
// manifest that somebody wrote with a right checksum but wrong contents is refused as well.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "common/sha256.h"
#include "tests/train/checkpoint/fixture.h"
#include "tests/train/checkpoint/signed.h"

namespace trainyard::testing_checkpoint {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// Neither synced nor cut to nothing first (which makes ext4 sync on close): thousands of either
// take minutes.
void Write(const std::string& path, const std::string& contents) {
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file << contents;
  }
  std::filesystem::resize_file(path, contents.size());
}

absl::Status OpenAndVerify(const std::string& path) {
  const auto checkpoint = Checkpoint::Open(path);
  return checkpoint.ok() ? checkpoint->Verify() : checkpoint.status();
}

std::string Mutated(const std::string& contents, uint64_t seed) {
  std::string bad = contents;
  const size_t at = RandomBits(seed, 1, 0) % bad.size();
  switch (RandomBits(seed, 2, 0) % 7) {
    case 0:
      bad[at] = char(bad[at] ^ (1 << RandomBits(seed, 3, 0) % 8));
      break;
    case 1:
      bad.resize(at);
      break;
    case 2:
      bad.append(1 + at % 100, char(RandomBits(seed, 3, 0)));
      break;
    case 3:
      bad.insert(at, 1, char(RandomBits(seed, 3, 0)));
      break;
    case 4:
      bad.erase(at, 1 + RandomBits(seed, 3, 0) % 9);
      break;
    case 5:
      std::fill_n(bad.begin() + ptrdiff_t(at), std::min<size_t>(32, bad.size() - at), '\0');
      break;
    default: {
      const size_t other = RandomBits(seed, 4, 0) % bad.size();
      std::swap(bad[at], bad[other]);
    }
  }
  return bad;
}

TEST(Corruption, EveryRandomChangeIsRefusedAndTheOneBeforeIsTaken) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  ASSERT_TRUE(Save(directory, 1, 20).ok());
  const std::string path = CheckpointPath(directory, 1, 20);
  const auto candidates = CompleteCheckpoints(directory).value();
  int changed = 0;
  for (const char* name : {"manifest.json", "rank-0.bin"}) {
    const std::string file = path + "/" + name;
    const std::string good = ReadFile(file).value();
    for (uint64_t seed = 0; seed < 2'500; ++seed) {
      const std::string bad = Mutated(good, seed);
      if (bad == good) continue;
      ++changed;
      Write(file, bad);
      const auto chosen = NewestGood(candidates);
      ASSERT_TRUE(chosen.ok()) << name << ", seed " << seed << ": " << chosen.status();
      ASSERT_EQ(chosen->checkpoint->state().step, 10) << name << ", seed " << seed;
      ASSERT_EQ(chosen->refused.size(), 1u);
      EXPECT_THAT(chosen->refused[0], HasSubstr(name)) << "seed " << seed;
    }
    Write(file, good);
  }
  EXPECT_GT(changed, 4'000);
  EXPECT_EQ(NewestGood(candidates)->checkpoint->state().step, 20);
}

// Load checks what it reads itself: nobody has to verify a checkpoint before.
TEST(Corruption, LoadNamesTheDamagedTensor) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 0, 1).ok());
  const std::string file = CheckpointPath(directory, 0, 1) + "/rank-0.bin";
  std::string bytes = ReadFile(file).value();
  const auto checkpoint = Checkpoint::Open(CheckpointPath(directory, 0, 1));
  const StoredTensor* tensor =
      checkpoint->manifest().Find("model.layers.0.mlp.down_proj.weight", TensorKind::kSecondMoment);
  bytes[tensor->boxes[0].file_offset + 5] ^= 1;
  Write(file, bytes);
  std::vector<float> values(32);
  TargetBox target{tensor->name, tensor->kind, DType::kF32, tensor->shape, WholeBox(tensor->shape),
                   values.data()};
  const absl::Status status = checkpoint->Load(std::span(&target, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("rank-0.bin"),
                               HasSubstr("model.layers.0.mlp.down_proj.weight (v)")));
  EXPECT_EQ(checkpoint->Verify().message(), status.message());
  EXPECT_FALSE(checkpoint->Digest().ok());
  target.kind = TensorKind::kParameter;
  EXPECT_TRUE(checkpoint->Load(std::span(&target, 1)).ok());
}

TEST(Corruption, MissingFilesAreNamed) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 0, 1).ok());
  const std::string path = CheckpointPath(directory, 0, 1);
  std::filesystem::remove(path + "/rank-0.bin");
  EXPECT_THAT(std::string(OpenAndVerify(path).message()), HasSubstr("rank-0.bin"));
  std::filesystem::remove(path + "/manifest.json");
  EXPECT_EQ(OpenAndVerify(path).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(OpenAndVerify(path).message()), HasSubstr("manifest.json"));
  EXPECT_EQ(OpenAndVerify(path + "/none").code(), absl::StatusCode::kNotFound);
}

TEST(NewestGood, SaysEveryReasonWhereNoneIsGood) {
  const std::string directory = TestDirectory();
  EXPECT_FALSE(NewestGood({})->checkpoint.has_value());
  ASSERT_TRUE(Save(directory, 0, 1).ok());
  Write(CheckpointPath(directory, 0, 1) + "/rank-0.bin", "short");
  const auto chosen = NewestGood({CheckpointPath(directory, 0, 1), directory + "/epoch-0/step-2"});
  EXPECT_EQ(chosen.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(chosen.status().message()),
              ::testing::AllOf(HasSubstr("none of 2"), HasSubstr("found 5"), HasSubstr("step-2")));
}

class SignedManifest : public ::testing::Test {
 protected:
  SignedManifest()
      : directory_(TestDirectory()), file_(CheckpointPath(directory_, 0, 1) + "/manifest.json") {
    EXPECT_TRUE(Save(directory_, 0, 1).ok());
    json_ = Json::parse(ReadFile(file_).value());
    json_.erase("manifest_sha256");
  }
  absl::Status Open(const Json& json) {
    Write(file_, Signed(json));
    return OpenAndVerify(CheckpointPath(directory_, 0, 1));
  }

  const std::string directory_;
  const std::string file_;
  Json json_;
};

struct Lie {
  const char* pointer;  // JSON pointer of what is replaced.
  const char* value;    // JSON.
  const char* message;
};

TEST_F(SignedManifest, ThatContradictsItselfIsRefused) {
  ASSERT_TRUE(Open(json_).ok()) << Open(json_);
  for (const Lie& lie : {
           Lie{"/version", "6", "wanted version 1 to 5, found 6"},
           Lie{"/version", "0", "wanted version 1 to 5, found 0"},
           Lie{"/version", "\"1\"", "version: wanted"},
           Lie{"/step", "-1", "step: wanted"},
           Lie{"/step", "1.5", "step: wanted"},
           Lie{"/step", "18446744073709551615", "step: wanted"},
           Lie{"/job_id", "\"\"", "job_id"},
           Lie{"/job_id", "7", "job_id: wanted a text"},
           Lie{"/model", "[]", "model: wanted an object"},
           Lie{"/model/hidden", "null", "model.hidden"},
           Lie{"/model/rope_scaling", "3", "rope_scaling: wanted an object"},
           Lie{"/layout", "3", "layout: wanted"},
           Lie{"/layout/zero", "3", "layout.zero: wanted a text"},
           Lie{"/tensors", "{}", "tensors: wanted a list"},
           Lie{"/tensors", "[]", "found 0"},
           Lie{"/tensors/0", "[]", "tensors[0]: wanted an object"},
           Lie{"/tensors/0/name", "\"a b\"", "illegal tensor name"},
           Lie{"/tensors/0/name", "\"\"", "illegal tensor name"},
           Lie{"/tensors/0/kind", "\"w\"", "one of parameter, m, v"},
           Lie{"/tensors/0/kind", "\"m\"", "listed twice"},
           Lie{"/tensors/0/dtype", "\"f16\"", "one of f64, f32, bf16"},
           Lie{"/tensors/0/dtype", "\"f64\"", "begins at byte"},
           Lie{"/tensors/0/shape", "[16, 5]", "boxes hold 64 of 80"},
           Lie{"/tensors/0/shape", "[16]", "has not the rank"},
           Lie{"/tensors/0/shape", "[0, 4]", "out of range"},
           Lie{"/tensors/0/shape", "[1099511627776, 1099511627776]", "out of range"},
           Lie{"/tensors/0/shape", "[4611686018427387904]", "out of range"},
           Lie{"/tensors/0/shape", "[1, 1, 1, 1, 1, 1]", "at most 5"},
           Lie{"/tensors/0/shape", "[-16, 4]", "tensors[0].shape: wanted a whole number from 0"},
           Lie{"/tensors/0/boxes", "[]", "found 0"},
           Lie{"/tensors/0/boxes/0/offset", "[1, 0]", "does not lie in"},
           Lie{"/tensors/0/boxes/0/offset", "[4611686018427387904, 0]", "does not lie in"},
           Lie{"/tensors/0/boxes/0/extent", "[15, 4]", "boxes hold 60 of 64"},
           Lie{"/tensors/0/boxes/0/extent", "[4611686018427387904, 4]", "does not lie in"},
           Lie{"/tensors/0/boxes/0/file", "\"../rank-0.bin\"", "illegal file name"},
           Lie{"/tensors/0/boxes/0/file", "\"/etc/passwd\"", "illegal file name"},
           Lie{"/tensors/0/boxes/0/file", "\"rank-.bin\"", "illegal file name"},
           Lie{"/tensors/0/boxes/0/file", "\"rank-7.bin\"", "wanted 0"},
           Lie{"/tensors/0/boxes/0/file_offset", "4", "begins at byte"},
           Lie{"/tensors/0/boxes/0/file_offset", "18446744073709551615", "out of range"},
           Lie{"/tensors/0/boxes/0/sha256", "\"abc\"", "64 hexadecimal"},
           Lie{"/tensors/0/boxes/0/piece", "[16]", "do not divide"},
           Lie{"/tensors/0/boxes/0/piece", "[0, 4]", "do not divide"},
           Lie{"/tensors/0/boxes/0/piece", "[17, 4]", "do not divide"},
           Lie{"/tensors/0/boxes/0/piece", "[1, 1]", "begins at byte"},
           Lie{"/tensors/0/boxes/0/piece", "3", "piece: wanted"},
       }) {
    SCOPED_TRACE(absl::StrCat(lie.pointer, " = ", lie.value));
    Json bad = json_;
    bad[Json::json_pointer(lie.pointer)] = Json::parse(lie.value);
    const absl::Status status = Open(bad);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(HasSubstr(lie.message), HasSubstr("/epoch-0/step-1/")));
  }
  Json bad = json_;
  bad["tensors"][0]["boxes"].push_back(bad["tensors"][0]["boxes"][0]);
  EXPECT_THAT(std::string(Open(bad).message()), HasSubstr("overlap"));
  bad = json_;
  std::swap(bad["tensors"][0]["boxes"][0]["sha256"], bad["tensors"][1]["boxes"][0]["sha256"]);
  EXPECT_THAT(std::string(Open(bad).message()), HasSubstr("does not match its checksum"));
  bad = json_;
  Json& first = bad["tensors"][0];
  first["shape"] = first["boxes"][0]["extent"] = {200, 400};
  first["boxes"][0]["piece"] = {1, 1};
  EXPECT_THAT(std::string(Open(bad).message()), HasSubstr("into at most 16384"));
  for (const auto& [key, value] : json_.items()) {
    bad = json_;
    bad.erase(key);
    EXPECT_EQ(Open(bad).ok(), key == "deterministic") << key;  // Which older builds did not write.
  }
}

// As the first builds wrote it.
TEST_F(SignedManifest, MayLackWhatWasNotRecordedOnce) {
  for (const char* field : {"virtual_pipeline", "schedule", "zero"}) json_["layout"].erase(field);
  json_.erase("deterministic");
  ASSERT_TRUE(Open(json_).ok()) << Open(json_);
  const auto checkpoint = Checkpoint::Open(CheckpointPath(directory_, 0, 1));
  EXPECT_EQ(checkpoint->state().layout, CheckpointLayout());
  EXPECT_TRUE(checkpoint->state().deterministic);
}

// Every value of the manifest replaced by values that break careless readers. Nothing may crash
// (run it under the sanitizers), and whatever is accepted must still verify.
TEST_F(SignedManifest, SurvivesAnyValueAnywhere) {
  std::vector<std::string> pointers;
  const Json flat = json_.flatten();
  for (const auto& [pointer, value] : flat.items()) pointers.push_back(pointer);
  int refused = 0;
  for (const std::string& pointer : pointers) {
    for (const char* value :
         {"null", "-1", "0", "1e308", "9223372036854775807", "18446744073709551615", "\"\"", "[]",
          "{}", "true", "[[[[[]]]]]", "4611686018427387904"}) {
      Json bad = json_;
      bad[Json::json_pointer(pointer)] = Json::parse(value);
      refused += !Open(bad).ok();
    }
  }
  EXPECT_GT(refused, int(pointers.size()) * 6);
  Write(file_, Signed(Json::object()));
  EXPECT_FALSE(Checkpoint::Open(CheckpointPath(directory_, 0, 1)).ok());
  // To copy what is nested so deeply takes more stack than there is.
  const std::string deep(200'000, '[');
  const std::string closed = deep + std::string(200'000, ']');
  Json nested = json_;
  nested["model"]["x"] = "here";
  const std::string model = absl::StrReplaceAll(nested.dump().substr(1), {{"\"here\"", closed}});
  for (const std::string& rest : {"\"x\": " + deep, "\"x\": " + closed + "}", model}) {
    Sha256 hash;
    hash.Update(rest);
    Write(file_, absl::StrCat("{\"manifest_sha256\": \"", hash.HexDigest(), "\",\n", rest));
    EXPECT_FALSE(Checkpoint::Open(CheckpointPath(directory_, 0, 1)).ok());
  }
}

}  // namespace
}  // namespace trainyard::testing_checkpoint
