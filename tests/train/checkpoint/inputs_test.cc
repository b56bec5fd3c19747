// Proves that a fingerprint is that of a file's content, wherever and whenever a copy of it was
// made, that it costs a bounded read, and that the record of an attempt's files is read back whole
// or not at all.

#include "train/checkpoint/inputs.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/models/hf/files.h"
#include "tests/train/checkpoint/bytes_read.h"
#include "tests/train/checkpoint/faulty_storage.h"
#include "train/checkpoint/paths.h"

namespace trainyard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As many different bytes as a corpus has.
std::string Bytes(size_t size, uint64_t seed) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = char((seed = seed * 6364136223846793005u + 1) >> 56);
  return bytes;
}

class Fingerprints : public ::testing::Test {
 protected:
  std::string Of(const std::string& bytes, const std::string& name = "file") const {
    WriteBytes(directory_ + "/" + name, bytes);
    const auto file = TakeFingerprint("data.text.path", "", directory_ + "/" + name, Roots());
    EXPECT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->size_bytes, bytes.size());
    return file->sha256;
  }
  const std::string directory_ = EmptyDirectory("files");
};

TEST_F(Fingerprints, AreThoseOfTheContent) {
  for (const size_t size : {0, 1, 4096, 131072, 131073, 1000003}) {
    std::string bytes = Bytes(size, 1);
    const std::string before = Of(bytes);
    EXPECT_EQ(Of(bytes, "copy"), before);
    for (const size_t at : {size_t{0}, size - 1}) {
      if (size == 0) continue;
      bytes[at] ^= 1;
      EXPECT_NE(Of(bytes), before) << at << " of " << size;
      bytes[at] ^= 1;
    }
  }
}

// A stretch of a thirtieth is longer than the distance of two places.
TEST_F(Fingerprints, NoticeAnotherThirtiethOfALargeFile) {
  const size_t size = 3'000'001;
  std::string bytes = Bytes(size, 1);
  const std::string before = Of(bytes);
  for (size_t begin = 0; begin + size / 30 <= size; begin += size / 97) {
    std::string changed = bytes;
    changed.replace(begin, size / 30, Bytes(size / 30, 2));
    EXPECT_NE(Of(changed), before) << begin;
  }
}

TEST_F(Fingerprints, ReadABoundedPartOfAFile) {
  Of(Bytes(50'000'000, 1));
  const int64_t read = testing_checkpoint::BytesReadBy(
      [&] { ASSERT_TRUE(TakeFingerprint("f", "", directory_ + "/file", Roots()).ok()); });
  EXPECT_LE(read, int64_t(kPlaces * kPlaceBytes));
  EXPECT_GT(read, 0);
}

InputFingerprint File(const std::string& field, const std::string& name, uint64_t size,
                      const std::string& sha256) {
  return {field, name, size, sha256, "/here" + name};
}

TEST(RecordedInputs, AreReadAsTheyWereWritten) {
  const RecordedInputs inputs{7,
                              {File("data.indexed.prefix", ".idx", 1, "ab"),
                               File("data.indexed.prefix", ".bin", uint64_t{1} << 40, "cd")}};
  const auto read = ParseInputs(ToJson(inputs));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->epoch, 7);
  EXPECT_EQ(ToJson(*read), ToJson(inputs));
  EXPECT_TRUE(CompareInputs(inputs.files, *read, "attempt 7").ok());
  for (const char* text : {"", "{}", "[1]", R"({"version": 1, "epoch": 1})",
                           R"({"version": 1, "epoch": 1, "files": [{"field": "a"}]})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseInputs(text).status())) << text;
  }
  EXPECT_TRUE(absl::IsUnimplemented(ParseInputs(R"({"version": 2})").status()));
}

// The last release recorded the tokenizer of a text by another name.
TEST(RecordedInputs, OfAnEarlierReleaseAreCompared) {
  const RecordedInputs earlier{7, {File("data.text.tokenizer", "", 1, "ab")}};
  const auto read = ParseInputs(ToJson(earlier));
  ASSERT_TRUE(read.ok()) << read.status();
  const std::string field = "data.text.tokenizer_path";
  EXPECT_TRUE(CompareInputs({File(field, "", 1, "ab")}, *read, "attempt 7").ok());
  EXPECT_FALSE(CompareInputs({File(field, "", 1, "cd")}, *read, "attempt 7").ok());
}

TEST(RecordedInputs, OfAFieldAreComparedWithThoseOfTheField) {
  const std::vector<InputFingerprint> files = {File("a", "", 1, "11"), File("b", "/x", 2, "22"),
                                               File("b", "/y", 3, "33")};
  const auto difference = [&](std::vector<InputFingerprint> found) {
    return std::string(CompareInputs(found, {1, files}, "attempt 1").message());
  };
  EXPECT_EQ(difference(files), "");
  EXPECT_EQ(difference({File("a", "", 1, "11")}), "") << "an attempt that imports nothing again";
  EXPECT_EQ(difference({File("c", "", 9, "99")}), "") << "no attempt has said what it read";
  EXPECT_EQ(difference({File("a", "", 1, "12")}),
            "a: /here is not the file that attempt 1 read: wanted 1 bytes with the fingerprint 11, "
            "found 1 bytes with the fingerprint 12");
  EXPECT_THAT(difference({File("a", "", 4, "11")}), HasSubstr("found 4 bytes"));
  EXPECT_EQ(difference({File("b", "/x", 2, "22")}),
            "b: wanted a file /y, which attempt 1 read, found none");
  EXPECT_THAT(
      difference({files[1], files[2], File("b", "/z", 4, "44")}),
      HasSubstr("/here/z is not the file that attempt 1 read: wanted no file of this name"));
}

class RecordOfInputs : public ::testing::Test {
 protected:
  void Write(int64_t epoch, const std::string& sha256) const {
    std::filesystem::create_directories(EpochPath(directory_, epoch));
    ASSERT_TRUE(WriteInputs(directory_, {epoch, {File("a", "", 1, sha256)}}, LocalStorage()).ok());
  }
  std::string PathOf(int64_t epoch) const { return EpochPath(directory_, epoch) + "/inputs.json"; }
  // The epoch whose record counts; 0: there is none.
  int64_t Read() const {
    const auto inputs = ReadInputs(directory_, Lineage());
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    return inputs.ok() && inputs->has_value() ? (*inputs)->epoch : 0;
  }
  const std::string directory_ = EmptyDirectory("job");
};

TEST_F(RecordOfInputs, IsThatOfTheEarliestAttemptThatHasOne) {
  EXPECT_EQ(Read(), 0);
  Write(10, "22");
  Write(9, "11");
  EXPECT_EQ(Read(), 9);
  WriteBytes(PathOf(9), "torn");
  EXPECT_EQ(Read(), 10);
  std::filesystem::remove(PathOf(9));
  std::filesystem::create_directory(PathOf(9));
  EXPECT_EQ(Read(), 10);
  std::filesystem::remove(PathOf(9));
  EXPECT_EQ(Read(), 10);
  WriteBytes(PathOf(9), R"({"version": 2})");
  EXPECT_TRUE(absl::IsUnimplemented(ReadInputs(directory_, Lineage()).status()));
}

// Bug it must catch: what a job read that has trained nothing counts for the run.
TEST_F(RecordOfInputs, IsThatOfTheNewestAttemptOfTheLineage) {
  for (const int64_t epoch : {1, 2, 3, 4}) Write(epoch, "11");
  const Lineage lineage = {{{4, 40}, {2, 20}, {1, 10}}};
  EXPECT_EQ(ReadInputs(directory_, lineage).value()->epoch, 4);
  WriteBytes(PathOf(4), "torn");
  EXPECT_EQ(ReadInputs(directory_, lineage).value()->epoch, 2);
  std::filesystem::remove(PathOf(2));
  EXPECT_EQ(ReadInputs(directory_, lineage).value()->epoch, 1);
}

TEST_F(RecordOfInputs, KeepsWhatOnlyEarlierAttemptsHaveRead) {
  RecordedInputs later{2, {File("a", "", 2, "22")}};
  KeepEarlier({1, {File("a", "", 1, "11"), File("b", "/x", 3, "33")}}, later);
  ASSERT_EQ(later.files.size(), 2u);
  EXPECT_EQ(later.files[0].sha256, "22");
  EXPECT_EQ(later.files[1].field, "b");
}

TEST_F(RecordOfInputs, IsWrittenWholeOrNotAtAll) {
  using testing_checkpoint::Fault;
  bool hit = true;
  int calls = 0;
  for (; hit; ++calls) {
    for (uint64_t seed = 0; seed < 8; ++seed) {  // Each loses another part of what was not synced.
      std::filesystem::remove_all(directory_);
      std::filesystem::create_directories(EpochPath(directory_, 1));
      testing_checkpoint::FaultyStorage storage(Fault::kPowerCut, calls + 1, seed,
                                                EmptyDirectory("graveyard"));
      const absl::Status written = WriteInputs(directory_, {1, {File("a", "", 1, "11")}}, storage);
      hit = storage.hit();
      EXPECT_EQ(written.ok(), !hit);
      storage.LosePower();
      const auto read = ReadInputs(directory_, Lineage());
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->has_value(), Exists(PathOf(1))) << calls;
      EXPECT_TRUE(hit || read->has_value()) << "what was written is lost";
    }
  }
  EXPECT_GE(calls, 5);
}

}  // namespace
}  // namespace trainyard::testing
