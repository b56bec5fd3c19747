// Proves that two jobs never get checkpoint directories of which one may be the other or lie inside
// it, however they are spelled, and that directories which cannot meet do not stand in each other's
// way.

#include "controller/jobs/directories.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard::controller {
namespace {

JobFacts Facts(const std::string& directory, const std::vector<std::string>& own = {}) {
  JobFacts facts;
  facts.checkpoint_directory = directory;
  facts.roots = own;
  return facts;
}

struct Pair {
  const char* first;
  const char* second;
  RootPaths roots;
  bool overlap;
};
void PrintTo(const Pair& pair, std::ostream* out) {
  *out << pair.first << " and " << pair.second << " below " << absl::StrJoin(pair.roots, " ");
}

class Pairs : public ::testing::TestWithParam<Pair> {};

TEST_P(Pairs, OverlapWhicheverComesFirst) {
  const Pair& pair = GetParam();
  for (const auto& [used, wanted] :
       {std::pair(pair.first, pair.second), std::pair(pair.second, pair.first)}) {
    SCOPED_TRACE(absl::StrCat(wanted, " while ", used, " is in use"));
    Directories directories;
    directories.Add(Facts(used), "j-1");
    const auto use = directories.Overlapping(wanted, {}, pair.roots);
    ASSERT_EQ(use.has_value(), pair.overlap);
    if (use) {
      EXPECT_EQ(use->directory, used);
      EXPECT_EQ(use->job_id, "j-1");
    }
    directories.Remove(Facts(used), "j-2");
    EXPECT_EQ(directories.Overlapping(wanted, {}, pair.roots).has_value(), pair.overlap);
    directories.Remove(Facts(used), "j-1");
    EXPECT_FALSE(directories.Overlapping(wanted, {}, pair.roots));
  }
}
INSTANTIATE_TEST_SUITE_P(
    Spelling, Pairs,
    ::testing::Values(Pair{"runs/a", "runs/a", {}, true}, Pair{"runs/a", "./runs//a/", {}, true},
                      Pair{"runs/a", "runs/b/../a", {}, true}, Pair{"runs/a", "runs/a/b", {}, true},
                      Pair{"runs/a", "runs/a/b/c/d", {}, true}, Pair{"runs/a", ".", {}, true},
                      Pair{"runs/a", "runs/ab", {}, false}, Pair{"runs/a/b", "runs/a-b", {}, false},
                      Pair{"runs/a", "a", {}, false}, Pair{"runs/a", "runs/b", {"/data"}, false},
                      Pair{"/data/a", "/data//./a/", {}, true}, Pair{"/data/a", "/", {}, true},
                      Pair{"/data/a", "/data/a/b", {}, true},
                      Pair{"/data/a", "/data/b", {}, false}));
INSTANTIATE_TEST_SUITE_P(
    Roots, Pairs,
    ::testing::Values(Pair{"runs/a", "/data/runs/a", {}, false},
                      Pair{"runs/a", "/data/runs/a", {"/data"}, true},
                      Pair{"runs/a", "/data/runs/a/b", {"/data/"}, true},
                      Pair{"runs/a/b", "/data/runs/a", {"/data"}, true},
                      Pair{"runs/a", "/data", {"/data"}, true},
                      Pair{"runs/a", "/", {"/data"}, true}, Pair{"runs/a", "/runs/a", {"/"}, true},
                      Pair{"runs/a", "/data/runs/ab", {"/data"}, false},
                      Pair{"runs/a", "/database/runs/a", {"/data"}, false},
                      Pair{"runs/a", "/other/runs/a", {"/data"}, false},
                      // The second root is what tells.
                      Pair{"runs/a", "/scratch/runs/a", {"/data", "/scratch"}, true},
                      // Below /data, "fast/a" is what "a" is below /data/fast.
                      Pair{"fast/a", "a", {"/data", "/data/fast"}, true},
                      Pair{"fast/a/b", "a", {"/data", "/data/fast"}, true},
                      Pair{"fast", "a", {"/data", "/data/fast"}, true},
                      Pair{"slow/a", "a", {"/data", "/data/fast"}, false}));

// Two jobs of namespaces with roots, on a cluster whose workers have these.
struct Tenants {
  JobFacts one;
  JobFacts other;
  RootPaths workers;
  bool overlap;
};
void PrintTo(const Tenants& pair, std::ostream* out) {
  for (const JobFacts& facts : {pair.one, pair.other}) {
    *out << facts.checkpoint_directory << " below " << absl::StrJoin(facts.roots, " ") << ", ";
  }
  *out << "workers " << absl::StrJoin(pair.workers, " ");
}

class TenantsDirectories : public ::testing::TestWithParam<Tenants> {};

TEST_P(TenantsDirectories, OverlapWhereBothHaveTheSameRoot) {
  const Tenants& pair = GetParam();
  for (const auto& [used, wanted] :
       {std::pair(pair.one, pair.other), std::pair(pair.other, pair.one)}) {
    SCOPED_TRACE(absl::StrCat(wanted.checkpoint_directory, " while ", used.checkpoint_directory,
                              " is in use"));
    Directories directories;
    directories.Add(used, "j-1");
    const auto use =
        directories.Overlapping(wanted.checkpoint_directory, wanted.roots, pair.workers);
    EXPECT_EQ(use.has_value(), pair.overlap);
    directories.Remove(used, "j-1");
    EXPECT_FALSE(directories.Overlapping(wanted.checkpoint_directory, wanted.roots, pair.workers));
  }
}
// Bug it must catch: a job with the checkpoint directory "." keeps all other namespaces out.
INSTANTIATE_TEST_SUITE_P(
    DisjointRoots, TenantsDirectories,
    ::testing::Values(
        Tenants{Facts(".", {"/data/a"}), Facts("run", {"/data/b"}), {"/data"}, false},
        Tenants{Facts(".", {"/data/a"}), Facts("run", {"/data/b"}), {}, false},
        Tenants{Facts(".", {"/data/a"}), Facts("run", {"/data/b"}), {"/other"}, false},
        Tenants{Facts(".", {"/data/a"}), Facts("/data/b/run", {"/data/b"}), {"/data"}, false},
        Tenants{Facts("run", {"/data/a"}), Facts("run", {"/data/b"}), {"/data"}, false},
        Tenants{Facts("run", {"/data/a"}), Facts("/data/b/run", {"/data/b"}), {"/data/b"}, false},
        Tenants{Facts("/data/a/../b", {"/data/a"}), Facts("run", {"/data/b"}), {"/data"}, false},
        Tenants{Facts("/data/a/../b/run", {"/data/a"}),
                Facts("/data/b/run", {"/data/b"}),
                {"/data"},
                false},
        Tenants{Facts("../b/run", {"/data/a"}), Facts("run", {"/data/b"}), {"/data"}, false},
        Tenants{Facts("..", {"/data/a"}), Facts("../run", {"/data/b"}), {}, false},
        // Only the first one's root is a worker's.
        Tenants{Facts("run", {"/data/a", "/ckpt"}), Facts("run", {"/ckpt"}), {"/data"}, false},
        Tenants{Facts("run", {}), Facts("run", {"/data/b"}), {"/data"}, false}));
INSTANTIATE_TEST_SUITE_P(
    CommonRoots, TenantsDirectories,
    ::testing::Values(
        Tenants{Facts("run", {"/data"}), Facts("run", {"/data"}), {"/data"}, true},
        Tenants{Facts("run", {"/data"}), Facts("run", {"/data"}), {}, true},
        Tenants{Facts("run", {"/data"}), Facts("run", {"/data"}), {"/other"}, true},
        Tenants{Facts(".", {"/data"}), Facts("run", {"/data/b"}), {"/data"}, true},
        Tenants{Facts("b/run", {"/data"}), Facts("run", {"/data/b"}), {"/data"}, true},
        Tenants{Facts("run", {"/data"}), Facts("run", {"/data/b"}), {"/data/b"}, true},
        Tenants{Facts("run", {"/data/a", "/ckpt"}), Facts("run", {"/ckpt"}), {"/", "/data"}, true},
        Tenants{Facts("b/run", {}), Facts("run", {"/data/b"}), {"/data"}, true},
        Tenants{Facts("run", {}), Facts("run", {"/data/b"}), {}, true},
        Tenants{Facts("/data/b", {}), Facts("run", {"/data/b"}), {}, true}));

// Traces may lie around a checkpoint directory, but not inside one.
TEST(Directories, HoldWhatIsInsideThem) {
  Directories directories;
  directories.Add(Facts("runs/a"), "j-1");
  EXPECT_TRUE(directories.Holding("runs/a", {}, {}));
  EXPECT_TRUE(directories.Holding("runs/a/traces", {}, {}));
  EXPECT_TRUE(directories.Holding("/data/runs/a/traces", {}, {"/data"}));
  EXPECT_FALSE(directories.Holding("runs", {}, {}));
  EXPECT_FALSE(directories.Holding("/data", {}, {"/data"}));
  EXPECT_FALSE(directories.Holding("", {}, {"/data"}));
}

TEST(Directories, AJobWithoutOneOverlapsWithNobody) {
  Directories directories;
  directories.Add(Facts(""), "j-1");
  EXPECT_FALSE(directories.Overlapping(".", {}, {"/data"}));
  directories.Add(Facts("."), "j-2");
  EXPECT_FALSE(directories.Overlapping("", {}, {"/data"}));
  directories.Remove(Facts(""), "j-2");
  EXPECT_TRUE(directories.Overlapping("a", {}, {"/data"}));
}

}  // namespace
}  // namespace trainyard::controller
