// Proves that what one host cannot read is not taken for damaged or absent: it chooses no older
// checkpoint for that, and removes nothing for it.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/train/checkpoint/fixture.h"
#include "train/checkpoint/history.h"
#include "train/checkpoint/inputs.h"
#include "train/checkpoint/lineage.h"

// What happens when a file is to be read past the cache.
static std::function<void()>& OnDrop() {
  static std::function<void()> function;
  return function;
}

// In place of the C library's: whether a page was read from the disk again, nobody else can tell.
extern "C" int posix_fadvise(int, off_t, off_t, int advice) noexcept {
  if (advice == POSIX_FADV_DONTNEED && OnDrop()) OnDrop()();
  return 0;
}

// A file whose every read fails; empty: none.
static std::string& Unreadable() {
  static std::string path;
  return path;
}

// In place of the C library's: a disk that cannot be read is nothing that a test can make.
extern "C" ssize_t read(int fd, void* to, size_t bytes) {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
  if (!Unreadable().empty() && path == Unreadable()) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_read, fd, to, bytes);
}

namespace trainyard::testing_checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Every read of the file fails with EIO, until the test ends.
struct ReadsFail {
  explicit ReadsFail(const std::string& file) { Unreadable() = std::filesystem::canonical(file); }
  ~ReadsFail() { Unreadable().clear(); }
};

std::vector<std::string> Complete(const std::string& directory) {
  return CompleteCheckpoints(directory).value();
}

TEST(BadReads, AFailedReadIsNoReasonToTakeTheOneBefore) {
  const std::string directory = TestDirectory();
  for (const int step : {10, 20}) ASSERT_TRUE(Save(directory, 1, step).ok());
  const ReadsFail fails(CheckpointPath(directory, 1, 20) + "/manifest.json");
  const absl::Status status = NewestGood(Complete(directory)).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step-20/manifest.json: Input/output error"), HasSubstr("move ")));
}

// Whoever may read everything stands back for a while, so that the file's mode counts.
TEST(BadReads, AFileThatThisHostMayNotReadIsNoReasonEither) {
  const std::string directory = TestDirectory();
  for (const int step : {10, 20}) ASSERT_TRUE(Save(directory, 1, step).ok());
  Begin(directory, 2, Continued{1, 20});
  const bool root = ::geteuid() == 0;
  const std::string manifest = CheckpointPath(directory, 1, 20) + "/manifest.json";
  const std::string lineage = directory + "/epoch-2/lineage.json";
  for (const std::string& file : {manifest, lineage}) {
    ASSERT_EQ(::chmod(file.c_str(), 0), 0);
    ASSERT_TRUE(!root || ::seteuid(65534) == 0);
    const absl::Status status = file == manifest ? NewestGood(Complete(directory)).status()
                                                 : ReadLineage(directory).status();
    ASSERT_TRUE(!root || ::seteuid(0) == 0);
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << file << ": " << status;
    EXPECT_TRUE(IsStorageFault(OfThisHost(status)));
  }
}

// The first read gives garbage, as of bytes that were damaged on their way to this host.
TEST(BadReads, WhatLooksDamagedIsReadOnceMore) {
  const std::string directory = TestDirectory();
  for (const int step : {10, 20}) ASSERT_TRUE(Save(directory, 1, step).ok());
  const std::string manifest = CheckpointPath(directory, 1, 20) + "/manifest.json";
  const std::string good = directory + "/good";
  std::filesystem::rename(manifest, good);
  std::ofstream(manifest) << "garbage";
  int dropped = 0;
  OnDrop() = [&] {
    if (++dropped == 1) std::filesystem::rename(good, manifest);
  };
  const auto chosen = NewestGood(Complete(directory));
  OnDrop() = nullptr;
  EXPECT_EQ(dropped, 2) << "the manifest and a rank's file";
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->checkpoint->state().step, 20);
  EXPECT_THAT(chosen->refused, ElementsAre());
}

// Bug it must catch: a base that one read showed as damaged is written again, beside readers that
// use it.
TEST(BadReads, ABaseThatLooksLostIsLookedAtOnceMore) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  const std::string saved = CheckpointPath(directory, 1, 10), base = BasePath(directory, 1);
  const BaseReference reference{.epoch = 1, .sha256 = Checkpoint::Open(saved)->manifest().sha256};
  std::filesystem::rename(saved, base);
  ASSERT_EQ(Checkpoint::CheckBase(directory, reference), absl::OkStatus());

  const std::string manifest = base + "/manifest.json", good = directory + "/good";
  std::filesystem::rename(manifest, good);
  std::ofstream(manifest) << "garbage";
  EXPECT_TRUE(absl::IsDataLoss(Checkpoint::CheckBase(directory, reference))) << "still garbage";
  OnDrop() = [&] {
    if (Exists(good)) std::filesystem::rename(good, manifest);
  };
  const absl::Status status = Checkpoint::CheckBase(directory, reference);
  OnDrop() = nullptr;
  EXPECT_TRUE(status.ok()) << status;
}

// Bug it must catch: a job that waits for ever at the end of a pipe, or is FAILED for a directory
// in the place of a file, although the checkpoint before is good.
TEST(BadReads, WhatIsNoFileIsDamageAndNeverWaitedFor) {
  for (const char* name : {"manifest.json", "rank-0.bin"}) {
    for (const bool pipe : {true, false}) {
      SCOPED_TRACE(absl::StrCat(name, pipe ? ", a pipe" : ", a directory"));
      const std::string directory = TestDirectory();
      for (const int step : {10, 20}) ASSERT_TRUE(Save(directory, 1, step).ok());
      const std::string path = absl::StrCat(CheckpointPath(directory, 1, 20), "/", name);
      std::filesystem::remove(path);
      ASSERT_EQ(pipe ? ::mkfifo(path.c_str(), 0600) : ::mkdir(path.c_str(), 0700), 0);
      const auto chosen = NewestGood(Complete(directory));
      ASSERT_TRUE(chosen.ok()) << chosen.status();
      EXPECT_EQ(chosen->checkpoint->state().step, 10);
      ASSERT_EQ(chosen->refused.size(), 1u);
      EXPECT_THAT(chosen->refused[0],
                  HasSubstr(absl::StrCat("/step-20/", name, " is not a regular file")));
    }
  }
}

TEST(BadReads, APipeInPlaceOfOwnerLineageOrHistoryIsNotWaitedFor) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  const std::string owner = directory + "/owner.json",
                    lineage = directory + "/epoch-1/lineage.json",
                    history = directory + "/epoch-1/steps.jsonl";
  for (const std::string& path : {owner, lineage, history}) {
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  }
  EXPECT_THAT(std::string(ClaimDirectory(directory, "j-1", 2, LocalStorage()).message()),
              HasSubstr(owner));
  ASSERT_TRUE(MakeDirectories(directory + "/epoch-2").ok());  // Has saved nothing.
  ASSERT_EQ(::mkfifo((directory + "/epoch-2/lineage.json").c_str(), 0600), 0);
  const auto loadable = LoadableCheckpoints(directory);
  ASSERT_TRUE(loadable.ok()) << loadable.status();
  EXPECT_EQ(loadable->size(), 1u) << "as without the files";
  ReadHistory(directory, {{{1, 10}}}, 0, [](int64_t, const std::string&) { FAIL(); });
  EXPECT_FALSE(AppendHistory(directory, 1, "{}\n", LocalStorage()).ok());
}

// Bug it must catch: a huge file passes for a full disk, and the job waits for space for ever.
TEST(BadReads, AHugeOwnerOrLineageFileIsDamage) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  ASSERT_TRUE(MakeDirectories(directory + "/epoch-2").ok());  // Has saved nothing.
  const std::string owner = directory + "/owner.json";
  for (const std::string& path :
       {owner, directory + "/epoch-1/lineage.json", directory + "/epoch-2/lineage.json"}) {
    ASSERT_TRUE(WriteFileAtomic(path, std::string(100'000, ' ')).ok());
  }
  const absl::Status claimed = ClaimDirectory(directory, "j-1", 3, LocalStorage());
  EXPECT_TRUE(absl::IsFailedPrecondition(claimed)) << claimed;
  EXPECT_THAT(std::string(claimed.message()),
              AllOf(HasSubstr("checkpoint.directory: "), HasSubstr(owner + " is larger than")));
  const auto loadable = LoadableCheckpoints(directory);
  ASSERT_TRUE(loadable.ok()) << loadable.status();
  EXPECT_EQ(loadable->size(), 1u) << "as without the files";
}

// Bug it must catch: a job's directory, or a file in it, becomes a link, and a rank reads what lies
// outside of the job's roots.
TEST(BadReads, WhatALinkLeadsToIsNotRead) {
  const std::string directory = TestDirectory(), away = directory + ".away";
  Begin(directory, 1, std::nullopt);
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  ASSERT_TRUE(RemoveTree(away).ok());
  std::filesystem::rename(directory, away);
  std::filesystem::create_symlink(away, directory);
  for (const absl::Status& status :
       {ListEpochs(directory).status(), LoadableCheckpoints(directory).status(),
        ReadLineage(directory).status(), ReadInputs(directory, Lineage()).status(),
        BaseOf(CheckpointPath(directory, 1, 10)).status(),
        ClaimDirectory(directory, "j-1", 2, LocalStorage())}) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  }
  std::filesystem::remove(directory);
  std::filesystem::rename(away, directory);
  const auto as_a_link = [&](const std::string& file, const std::function<absl::Status()>& read) {
    std::filesystem::rename(directory + file, away);
    std::filesystem::create_symlink(away, directory + file);
    const absl::Status status = read();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << file << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("wanted a path without links"));
    std::filesystem::rename(away, directory + file);
  };
  as_a_link("/owner.json", [&] { return ClaimDirectory(directory, "j-1", 2, LocalStorage()); });
  as_a_link("/epoch-1/lineage.json", [&] { return ReadLineage(directory).status(); });
  const std::string saved = CheckpointPath(directory, 1, 10);
  as_a_link("/epoch-1/step-10/manifest.json", [&] { return Checkpoint::Open(saved).status(); });
}

TEST(BadReads, AManifestThatCannotBeLookedAtIsNotAbsent) {
  const std::string directory = TestDirectory();
  for (const int step : {10, 20}) ASSERT_TRUE(Save(directory, 1, step).ok());
  const std::string manifest = CheckpointPath(directory, 1, 20) + "/manifest.json";
  std::filesystem::remove(manifest);
  std::filesystem::create_symlink(manifest, manifest);  // ELOOP.
  const absl::Status status = LoadableCheckpoints(directory).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("step-20/manifest.json"));
  EXPECT_FALSE(ApplyRetention(directory, {.keep = 1, .epoch = 1}, LocalStorage()).ok());
  EXPECT_TRUE(Exists(CheckpointPath(directory, 1, 10)));
}

// Bug it must catch: such an epoch continues everything before it, checkpoints off its line too.
TEST(BadReads, ALineageFileThatCannotBeReadIsAnError) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  for (const int step : {10, 20}) ASSERT_TRUE(Save(directory, 1, step).ok());
  Begin(directory, 2, Continued{1, 10});
  ASSERT_TRUE(Save(directory, 2, 15).ok());
  const ReadsFail fails(EpochPath(directory, 2) + "/lineage.json");
  EXPECT_TRUE(absl::IsInternal(LoadableCheckpoints(directory).status()));
}

// A host took 1/30 for damaged, and went on from 1/20: nobody knows whether 1/30 is.
TEST(BadReads, WhatAHostLeftAsideStaysUntilEnoughNewerOnesAreGood) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  for (const int step : {20, 30}) ASSERT_TRUE(Save(directory, 1, step).ok());
  Begin(directory, 2, Continued{1, 20});
  const auto save = [&](int64_t step) {
    ASSERT_TRUE(Save(directory, 2, step).ok());
    std::vector<ListedCheckpoint> left;
    const Retention retention{.keep = 2, .epoch = 2};
    OpenedCheckpoints opened;
    ASSERT_TRUE(ApplyRetention(directory, retention, LocalStorage(), opened, &left).ok());
    EXPECT_EQ(PathsOfComplete(left), PathsOfComplete(LoadableCheckpoints(directory).value()));
  };
  save(25);
  EXPECT_THAT(Complete(directory),
              ElementsAre(EndsWith("2/step-25"), EndsWith("1/step-30"), EndsWith("1/step-20")));
  save(35);
  EXPECT_THAT(Complete(directory), ElementsAre(EndsWith("2/step-35"), EndsWith("2/step-25")));
}

// A save looks at a directory before it writes and afterwards. Bug it must catch: an error of the
// first look, which has passed, is what the second look finds.
TEST(BadReads, WhatWasNotReadIsReadAgain) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  const std::string path = CheckpointPath(directory, 1, 10);
  OpenedCheckpoints opened;
  {
    const ReadsFail fails(path + "/manifest.json");
    EXPECT_FALSE(opened.Of(path).ok());
  }
  EXPECT_TRUE(opened.Of(path).ok());
}

// One of the line that this host cannot read counts as little as it is removed.
TEST(BadReads, RetentionDoesNotRemoveWhatItCannotRead) {
  const std::string directory = TestDirectory();
  for (const int step : {10, 20, 30}) ASSERT_TRUE(Save(directory, 1, step).ok());
  const ReadsFail fails(CheckpointPath(directory, 1, 20) + "/manifest.json");
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 2, .epoch = 1}, LocalStorage()).ok());
  EXPECT_EQ(Complete(directory).size(), 3u);
}

}  // namespace
}  // namespace trainyard::testing_checkpoint
