// Proves that the audit log's beginning is missed, that an anchor vouches for what it says, and
// that a log whose oldest entries are no longer kept is no broken one.

#include "cli/audit_chain.h"

#include <gmock/gmock.h>

#include <vector>

#include "absl/strings/str_cat.h"

namespace trainyard::cli {
namespace {

using ::testing::HasSubstr;

class AuditChainTest : public ::testing::Test {
 protected:
  AuditChainTest() {
    for (uint64_t number = 1; number <= 8; ++number) {
      AuditEntry entry{.number = number, .caller = absl::StrCat("caller ", number)};
      entry.hash = ChainedHash(log_.empty() ? "" : log_.back().hash, entry);
      log_.push_back(entry);
    }
  }
  // What --verify says of those of the entries that it asks for.
  static std::string Verify(const std::vector<AuditEntry>& log, AuditAnchor anchor = {},
                            uint64_t kept = 100) {
    AuditChain chain(std::move(anchor), kept);
    for (const AuditEntry& entry : log) {
      if (entry.number <= chain.after()) continue;
      if (const absl::Status status = chain.Add(entry); !status.ok()) {
        return std::string(status.message());
      }
    }
    const absl::Status status = chain.Finish();
    return status.ok() ? absl::StrCat(chain.Range(), ". ", chain.Doubt())
                       : std::string(status.message());
  }
  std::vector<AuditEntry> Without(size_t oldest) const {
    return {log_.begin() + std::ptrdiff_t(oldest), log_.end()};
  }
  AuditAnchor AnchorAt(uint64_t number) const { return {number, log_[number - 1].hash}; }

  std::vector<AuditEntry> log_;
};

TEST_F(AuditChainTest, ARemovedBeginningIsMissed) {
  EXPECT_EQ(Verify(log_), "entries 1 to 8. ");
  EXPECT_THAT(Verify(Without(1)), HasSubstr("entry 1 is missing"));
  EXPECT_THAT(Verify(Without(2)), HasSubstr("entries 1 to 2 are missing"));
  // A controller that keeps five has 4 to 8, and at times older ones.
  EXPECT_THAT(Verify(Without(3), {}, 5),
              HasSubstr("entries 4 to 8. entries before 4 are no longer kept"));
  EXPECT_THAT(Verify(Without(2), {}, 5), HasSubstr("entries 3 to 8. entries before 3"));
  EXPECT_THAT(Verify(Without(4), {}, 5), HasSubstr("entries 1 to 4 are missing"));
}

TEST_F(AuditChainTest, AnAnchorVouchesForWhatTheEntrySays) {
  EXPECT_EQ(Verify(log_, AnchorAt(4)), "entries 4 to 8. ");
  EXPECT_EQ(Verify(log_, AnchorAt(1)), "entries 1 to 8. ");
  EXPECT_EQ(Verify(log_, AnchorAt(8)), "entries 8 to 8. ");
  std::vector<AuditEntry> changed = log_;
  changed[3].caller = "mallory";
  EXPECT_THAT(Verify(changed, AnchorAt(4)), HasSubstr("entry 4 or the one before was changed"));
  EXPECT_THAT(Verify(Without(4), AnchorAt(4)), HasSubstr("entry 4 is not there"));
  changed = log_;
  changed.erase(changed.begin() + 6);
  EXPECT_THAT(Verify(changed, AnchorAt(8)), HasSubstr("entry 7 is missing"));
}

// Only an anchor finds who writes the whole chain anew.
TEST_F(AuditChainTest, AChainThatWasWrittenAnewIsFoundByAnAnchor) {
  std::vector<AuditEntry> anew = log_;
  anew[1].caller = "mallory";
  for (size_t i = 1; i < anew.size(); ++i) anew[i].hash = ChainedHash(anew[i - 1].hash, anew[i]);
  EXPECT_EQ(Verify(anew), "entries 1 to 8. ");
  EXPECT_THAT(Verify(anew, AnchorAt(8)), HasSubstr("and had " + log_.back().hash));
}

}  // namespace
}  // namespace trainyard::cli
