// Proves R20: whatever happens to the files of a checkpoint that several ranks wrote, nothing of it
// is used. Each mutation (bits, lengths, files and boxes exchanged, copied, missing, of another
// step, a signed manifest with wrong sizes) is refused with an error that names the file, and the
// checkpoint before it is taken instead. A few hundred mutations in CI; for more,
//
//   TRAINYARD_MUTATIONS=10000 [TRAINYARD_SEED=N] train_checkpoint_test --gtest_filter=Mutations.*

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/train/checkpoint/fixture.h"
#include "tests/train/checkpoint/signed.h"

namespace trainyard::testing_checkpoint {
namespace {

using Json = nlohmann::ordered_json;
using Files = std::map<std::string, std::string>;  // Contents by name.

constexpr int kRanks = 3;
constexpr char kManifest[] = "manifest.json";

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// As kRanks ranks write it, each some rows of every tensor.
void SaveOfRanks(const std::string& directory, int64_t step) {
  const std::vector<TestTensor> tensors = Tensors(step);
  const std::string path = CheckpointPath(directory, 1, step);
  ASSERT_TRUE(BeginCheckpoint(directory, 1, step, LocalStorage()).ok());
  std::vector<StoredTensor> written;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    std::vector<SourceBox> boxes;
    for (const TestTensor& t : tensors) {
      const int64_t rows = t.shape[0], width = t.shape.elements() / rows;
      const int64_t begin = rank * rows / kRanks, end = (rank + 1) * rows / kRanks;
      Box box = WholeBox(t.shape);
      box.offset = box.offset.With(0, begin);
      box.extent = box.extent.With(0, end - begin);
      boxes.push_back(
          {t.name, t.kind, DType::kF32, t.shape, box, &t.values[size_t(begin * width)]});
    }
    auto part = WriteRank(path, rank, boxes, LocalStorage());
    ASSERT_TRUE(part.ok()) << part.status();
    written.insert(written.end(), part->begin(), part->end());
  }
  const auto manifest = CommitCheckpoint(directory, State(1, step), written, LocalStorage());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
}

Files ReadAll(const std::string& path) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files[entry.path().filename().string()] = ReadFile(entry.path().string()).value();
  }
  return files;
}

// Makes the directory hold these files and nothing else.
void WriteAll(const std::string& path, const Files& files) {
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    std::filesystem::remove_all(entry.path());
  }
  for (const auto& [name, contents] : files) {
    std::ofstream(path + "/" + name, std::ios::binary) << contents;
  }
}

// One change to the files of a checkpoint, and the files of which an error may name any.
class Mutation {
 public:
  Mutation(uint64_t seed, const Files& good, const Files& other_step)
      : files(good), random_(seed), good_(good), other_step_(other_step) {
    using Change = void (Mutation::*)();
    static constexpr Change kChanges[] = {
        &Mutation::FlipBit,    &Mutation::FlipBit,       &Mutation::Truncate,
        &Mutation::Insert,     &Mutation::Erase,         &Mutation::Zero,
        &Mutation::SwapFiles,  &Mutation::SwapBoxes,     &Mutation::CopyFile,
        &Mutation::RemoveFile, &Mutation::TakeFromOther, &Mutation::ChangeSize};
    // Some changes may leave everything as it was: another bit of the same zeros, say.
    while (files == good_) (this->*kChanges[Below(std::size(kChanges))])();
  }

  Files files;
  std::string what;
  std::vector<std::string> named;

 private:
  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  const std::string& AnyFile() {
    return std::next(good_.begin(), ptrdiff_t(Below(good_.size())))->first;
  }
  std::string& Begin(const char* change, const std::string& name) {
    what = absl::StrCat(change, " ", name);
    named = {name};
    return files[name];
  }

  void FlipBit() {
    std::string& bytes = Begin("a bit of", AnyFile());
    bytes[Below(bytes.size())] ^= char(1 << Below(8));
  }
  void Truncate() {
    std::string& bytes = Begin("the end of", AnyFile());
    bytes.resize(Below(bytes.size()));
  }
  void Insert() {
    std::string& bytes = Begin("bytes more in", AnyFile());
    bytes.insert(Below(bytes.size() + 1), 1 + Below(64), char(Below(256)));
  }
  void Erase() {
    std::string& bytes = Begin("bytes fewer in", AnyFile());
    bytes.erase(Below(bytes.size()), 1 + Below(64));
  }
  void Zero() {  // As a block that never reached the disk.
    std::string& bytes = Begin("zeros in", AnyFile());
    const size_t at = Below(bytes.size());
    const size_t length = std::min(bytes.size() - at, 1 + Below(512));
    bytes.replace(at, length, length, '\0');
  }
  void SwapFiles() {
    const std::string one = AnyFile(), other = AnyFile();
    Begin("exchanged with another:", one);
    named.push_back(other);
    std::swap(files[one], files[other]);
  }
  void CopyFile() {
    const std::string from = AnyFile();
    Begin("a copy of another file as", AnyFile()) = good_.at(from);
  }
  void RemoveFile() {
    const std::string& name = AnyFile();
    Begin("no", name);
    files.erase(name);
  }
  void TakeFromOther() {
    const std::string& name = AnyFile();
    Begin("another step's", name) = other_step_.at(name);
  }

  Json ManifestJson() const {
    Json json = Json::parse(good_.at(kManifest));
    json.erase("manifest_sha256");
    return json;
  }
  Json& AnyBox(Json& manifest) {
    Json& boxes = manifest["tensors"][Below(manifest["tensors"].size())]["boxes"];
    return boxes[Below(boxes.size())];
  }
  // The bytes of two boxes of one size, as where two writes went to each other's place.
  void SwapBoxes() {
    Json manifest = ManifestJson();
    const Json one = AnyBox(manifest), other = AnyBox(manifest);
    const auto bytes = [](const Json& box) {
      size_t size = sizeof(float);
      for (const Json& extent : box["extent"]) size *= extent.get<size_t>();
      return size;
    };
    if (bytes(one) != bytes(other)) return;
    Begin("a box exchanged with another in", one["file"].get<std::string>());
    named.push_back(other["file"].get<std::string>());
    const auto at = [&](const Json& box) {
      return files.at(box["file"].get<std::string>()).begin() + box["file_offset"].get<ptrdiff_t>();
    };
    std::swap_ranges(at(one), at(one) + ptrdiff_t(bytes(one)), at(other));
  }
  // Wrong though its checksum is right: as a faulty program would write it.
  void ChangeSize() {
    Json manifest = ManifestJson();
    Json& tensor = manifest["tensors"][Below(manifest["tensors"].size())];
    Json& box = tensor["boxes"][Below(tensor["boxes"].size())];
    Json& lengths = std::array{&tensor["shape"], &box["offset"], &box["extent"]}[Below(3)][0];
    Json& length = Below(4) == 0 ? box["file_offset"] : lengths[Below(lengths.size())];
    const int64_t by[] = {-1, 1, 2, int64_t(1) << Below(63), -(int64_t(1) << Below(63))};
    length = length.get<int64_t>() + by[Below(std::size(by))];
    Begin("another size in", kManifest) = Signed(manifest);
  }

  std::mt19937_64 random_;
  const Files& good_;
  const Files& other_step_;
};

// A rank of another layout, which has the first or second half of each tensor's last dim, gets
// what was saved or an error.
void ExpectNoWrongShard(const std::string& path, int64_t step) {
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return;
  for (const TestTensor& t : Tensors(step)) {
    const int last = t.shape.rank() - 1;
    for (const int64_t half : {0, 1}) {
      Box box = WholeBox(t.shape);
      box.extent = box.extent.With(last, t.shape[last] / 2);
      box.offset = box.offset.With(last, half * box.extent[last]);
      std::vector<float> found(size_t(box.elements())), wanted(found.size());
      const TargetBox target{t.name, t.kind, DType::kF32, t.shape, box, found.data()};
      if (!checkpoint->Load(std::span(&target, 1)).ok()) continue;
      ForEachSharedRun(WholeBox(t.shape), box, [&](int64_t from, int64_t to, int64_t count) {
        std::copy_n(&t.values[size_t(from)], count, &wanted[size_t(to)]);
        return absl::OkStatus();
      }).IgnoreError();
      ASSERT_EQ(found, wanted) << t.name << ", " << ToString(box);
    }
  }
}

TEST(Mutations, AreRefusedByNameAndTheCheckpointBeforeIsTaken) {
  const uint64_t count = FromEnvironment("TRAINYARD_MUTATIONS", 400);
  const uint64_t seed = FromEnvironment("TRAINYARD_SEED", std::random_device()());
  std::cout << "TRAINYARD_MUTATIONS=" << count << " TRAINYARD_SEED=" << seed << '\n' << std::flush;
  const std::string directory = TestDirectory();
  SaveOfRanks(directory, 10);
  SaveOfRanks(directory, 20);
  const std::string path = CheckpointPath(directory, 1, 20);
  const Files good = ReadAll(path), other = ReadAll(CheckpointPath(directory, 1, 10));
  ASSERT_EQ(good.size(), size_t{kRanks + 1});
  const std::vector<std::string> candidates = {path, CheckpointPath(directory, 1, 10)};
  std::map<std::string, int> kinds;
  for (uint64_t i = 0; i < count; ++i) {
    const Mutation mutation(seed + i, good, other);
    SCOPED_TRACE(absl::StrCat("mutation ", seed + i, ": ", mutation.what));
    ++kinds[mutation.what];
    WriteAll(path, mutation.files);
    ExpectNoWrongShard(path, 20);
    const auto chosen = NewestGood(candidates);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    ASSERT_EQ(chosen->checkpoint->state().step, 10);
    ASSERT_EQ(chosen->refused.size(), 1u);
    const std::string& why = chosen->refused[0];
    ASSERT_TRUE(std::any_of(mutation.named.begin(), mutation.named.end(), [&](const auto& name) {
      return why.find(absl::StrCat("/step-20/", name)) != std::string::npos;
    })) << why;
  }
  WriteAll(path, good);
  const auto chosen = NewestGood(candidates);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  ExpectHolds(*chosen->checkpoint, 20);
  for (const auto& [what, times] : kinds) std::cout << times << " x " << what << '\n';
}

}  // namespace
}  // namespace trainyard::testing_checkpoint
