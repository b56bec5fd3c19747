// Proves that who asks for a grant never waits for the disk, and that what could not be read is
// read once it can be.

#include "controller/access/grants.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>

#include "security/secret_file.h"
#include "tests/controller/testing/disk_that_hangs.h"
#include "tests/controller/testing/temp_directory.h"
#include "tests/testing/read_faults.h"

namespace trainyard::controller {
namespace {

constexpr auto kDeadline = std::chrono::seconds(20);

StoredGrant MakeGrant() {
  v1::Grant grant;
  grant.set_name("a");
  grant.set_role(v1::ROLE_ADMIN);
  grant.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(RealClock().Now()) + 60);
  return MakeToken(grant, RealClock().Now())->stored;
}

// Bug it must catch: a disk that hangs while one certificate is renewed stops all heartbeats.
TEST(Grants, AreFoundWhileTheDiskHangs) {
  const TempDirectory directory;
  const auto grants = *Grants::Open(directory.path() + "/grants", RealClock());
  const StoredGrant old = MakeGrant(), fresh = MakeGrant();
  ASSERT_TRUE(grants->Put(old).ok());
  std::future<absl::Status> put;
  std::future<bool> found;  // Outlives the disk's trouble, so that a failure does not wait for it.
  {
    const DiskThatHangs disk;
    put = std::async(std::launch::async, [&] { return grants->Put(fresh); });
    disk.AwaitCaller();
    found = std::async(std::launch::async, [&] {
      return grants->Find(old.grant.id()).has_value() && grants->Knows(old.grant.id()) &&
             !grants->Find(fresh.grant.id()) && grants->List().size() == 1;
    });
    ASSERT_EQ(found.wait_for(kDeadline), std::future_status::ready);
    EXPECT_TRUE(found.get());
  }
  EXPECT_TRUE(put.get().ok());
  EXPECT_TRUE(grants->Find(fresh.grant.id()));
}

// Bug it must catch: a controller without a free descriptor at its start took the grants for
// revoked, and did not look again until one was made or removed.
// Bug it must catch: each retry of `token create` leaves a token that nobody has seen.
TEST(Grants, ARepeatedRequestLeavesOneGrant) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/grants";
  auto grants = Grants::Open(path, RealClock());
  ASSERT_TRUE(grants.ok()) << grants.status();
  const auto put = [&](const std::string& request_id, const std::string& creator) {
    StoredGrant grant = MakeGrant();
    grant.request_id = request_id;
    grant.grant.set_created_by(creator);
    EXPECT_TRUE((*grants)->Put(grant).ok());
    return grant.grant.id();
  };
  const std::string first = put("r", "alice");
  grants = Grants::Open(path, RealClock());  // The controller died before it had answered.
  ASSERT_TRUE(grants.ok()) << grants.status();
  EXPECT_TRUE((*grants)->Knows(first));
  const std::string second = put("r", "alice");
  EXPECT_FALSE((*grants)->Knows(first));
  put("r", "bob");
  put("", "alice");
  put("", "alice");
  EXPECT_TRUE((*grants)->Knows(second));
  EXPECT_EQ((*grants)->List().size(), 4u);
}

TEST(Grants, AStartWaitsForThoseThatCannotBeReadForAMoment) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/grants";
  const StoredGrant grant = MakeGrant();
  ASSERT_TRUE((*Grants::Open(path, RealClock()))->Put(grant).ok());
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), std::array<timespec, 2>{}.data(), 0), 0);
  for (const ReadFault fault : {ReadFault::kEio, ReadFault::kEmfile, ReadFault::kEacces}) {
    for (const std::string& file : {std::string("/grants"), grant.grant.id() + ".json"}) {
      SCOPED_TRACE(absl::StrCat("fault ", int(fault), " of ", file));
      const FaultyReads faulty(fault, file, 2);
      const auto grants = *Grants::Open(path, RealClock());
      EXPECT_EQ(faulty.met(), 2);
      EXPECT_TRUE(grants->Find(grant.grant.id()));
    }
  }
}

// Bug it must catch: a token that root made for a controller of another user is refused for ever.
TEST(Grants, AFileThatCouldNotBeReadIsTriedAgain) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/grants";
  const auto grants = *Grants::Open(path, RealClock());
  const StoredGrant grant = MakeGrant();
  const std::string file = path + "/" + grant.grant.id() + ".json";
  ASSERT_TRUE(WriteSecret(file, ToJson(grant)).ok());
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  const timespec past[2] = {{.tv_sec = 1'000'000'000, .tv_nsec = 0},
                            {.tv_sec = 1'000'000'000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), past, 0), 0);  // A directory that is quiet.
  for (int i = 0; i < 3; ++i) grants->Refresh();
  EXPECT_FALSE(grants->Find(grant.grant.id()));
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  grants->Refresh();
  EXPECT_TRUE(grants->Find(grant.grant.id()));
}

// Bug it must catch: a grant that is copied into the directory while a Refresh reads it, as from a
// backup, is refused until the controller starts again.
TEST(Grants, AFileThatWasReadHalfIsReadAgain) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/grants";
  const auto grants = *Grants::Open(path, RealClock());
  const StoredGrant grant = MakeGrant();
  const std::string file = path + "/" + grant.grant.id() + ".json";
  const std::string text = ToJson(grant);
  const int copy = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(copy, 0);
  const size_t half = text.size() / 2;
  ASSERT_EQ(::write(copy, text.data(), half), ssize_t(half));
  grants->Refresh();
  EXPECT_FALSE(grants->Find(grant.grant.id()));
  ASSERT_EQ(::write(copy, text.data() + half, text.size() - half), ssize_t(text.size() - half));
  ASSERT_EQ(::close(copy), 0);
  grants->Refresh();
  EXPECT_TRUE(grants->Find(grant.grant.id()));
}

}  // namespace
}  // namespace trainyard::controller
