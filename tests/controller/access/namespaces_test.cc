// Proves that a namespace's file is read as it is written, and that a spec outside of its
// namespace's limits is refused.

#include "controller/access/namespaces.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "common/files.h"
#include "common/roots.h"
#include "tests/controller/testing/temp_directory.h"

namespace trainyard::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NamespacesTest : public ::testing::Test {
 protected:
  std::string Path() const { return directory_.path() + "/namespaces.yaml"; }
  void Write(const std::string& text) { ASSERT_TRUE(WriteFileAtomic(Path(), text).ok()); }
  std::unique_ptr<Namespaces> MustOpen() {
    auto namespaces = Namespaces::Open(Path());
    EXPECT_TRUE(namespaces.ok()) << namespaces.status();
    return *std::move(namespaces);
  }
  static Spec SpecOf(uint32_t ranks, const std::vector<std::string>& paths) {
    Spec spec;
    spec.facts.ranks = ranks;
    for (const std::string& path : paths) spec.facts.paths.push_back({"init_from", path});
    return spec;
  }

  const TempDirectory directory_;
};

constexpr char kTwo[] = "research:\n  devices: 8\n  roots: [/data/research, /ckpt]\ndefault: {}\n";

TEST_F(NamespacesTest, AreReadAsWritten) {
  Write(kTwo);
  const auto namespaces = MustOpen();
  EXPECT_EQ(namespaces->Find("research")->devices, 8U);
  EXPECT_THAT(namespaces->Find("research")->roots, ElementsAre("/data/research", "/ckpt"));
  EXPECT_EQ(namespaces->Find("default")->devices, std::nullopt);
  EXPECT_THAT(namespaces->Find("default")->roots, IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(namespaces->Find("other").status()));
  EXPECT_EQ(namespaces->DeviceQuota("other"), 0U) << "its jobs from before must not go on";
}

TEST_F(NamespacesTest, WithoutAFileAllExistWithoutLimits) {
  const auto namespaces = *Namespaces::Open("");
  EXPECT_TRUE(namespaces->Find("any").ok());
  EXPECT_EQ(namespaces->DeviceQuota("any"), std::nullopt);
}

TEST_F(NamespacesTest, WhatIsWrongIsNamed) {
  for (const auto& [text, wanted] :
       std::vector<std::pair<std::string, std::string>>{{"a: {devices: -1}", "a.devices"},
                                                        {"a: {devices: many}", "a.devices"},
                                                        {"a: {roots: []}", "a.roots"},
                                                        {"a: {roots: /data}", "a.roots"},
                                                        {"a: {roots: [data]}", "found 'data'"},
                                                        {"a: {gpus: 3}", "a.gpus"},
                                                        {"a: 3", "wanted {devices"},
                                                        {"a b: {}", "wanted 1 to 64 letters"},
                                                        {"'': {}", "wanted 1 to 64 letters"},
                                                        {"[a]", "mapping"},
                                                        {"a: {}\na: {}", "a"}}) {
    const auto parsed = ParseNamespaces(text);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << text;
    EXPECT_THAT(parsed.status().ToString(), HasSubstr(wanted)) << text;
  }
  EXPECT_FALSE(Namespaces::Open(Path()).ok()) << "a file that is not there";
}

TEST_F(NamespacesTest, ASpecOutsideOfItsLimitsIsRefused) {
  Write(kTwo);
  const auto namespaces = MustOpen();
  const auto admit = [&](const Spec& spec, const std::string& name = "research") {
    return namespaces->Admit(spec, name, {.name = "alice", .name_space = name});
  };
  for (const char* good : {"/data/research", "/data/research/a/b", "/ckpt/x", "relative/path"}) {
    const auto admitted = admit(SpecOf(8, {good}));
    ASSERT_TRUE(admitted.ok()) << good << ": " << admitted.status();
    EXPECT_EQ((*admitted)->facts.name_space, "research");
    EXPECT_EQ((*admitted)->facts.submitter, "alice");
    EXPECT_THAT((*admitted)->facts.roots, ElementsAre("/data/research", "/ckpt"));
  }
  for (const char* bad : {"/", "/data", "/data/researcher", "/etc"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(admit(SpecOf(1, {"/ckpt", bad})).status())) << bad;
    EXPECT_TRUE(admit(SpecOf(1, {bad}), "default").ok()) << "the default one has no roots";
  }
  EXPECT_THAT(admit(SpecOf(9, {})).status().ToString(), HasSubstr("at most 8"));
  EXPECT_THAT(admit(SpecOf(1, {}), "other").status().ToString(), HasSubstr("'other'"));
}

TEST_F(NamespacesTest, OnlyWhoActsInAllLearnsWhichThereAre) {
  Write(kTwo);
  const auto namespaces = MustOpen();
  const auto refusal = [&](const Principal& caller) {
    return namespaces->Admit(SpecOf(1, {}), "other", caller).status().ToString();
  };
  EXPECT_THAT(refusal({.name = "olga"}), HasSubstr("there are default, research"));
  EXPECT_THAT(refusal({.name = "sam", .name_space = "other"}),
              ::testing::AllOf(HasSubstr("'other'"), ::testing::Not(HasSubstr("research"))));
}

TEST_F(NamespacesTest, ANamespaceHasANameAlsoWithoutAFile) {
  const auto namespaces = *Namespaces::Open("");
  for (const std::string& name : {std::string("\n"), std::string("a\nb"), std::string(65, 'a')}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(namespaces->Admit(SpecOf(1, {}), name, {.name = "olga"}).status()))
        << name;
  }
}

// Bug it must catch: who may write to the file gives a namespace the roots of all others.
TEST_F(NamespacesTest, AFileThatOthersMayWriteIsRefused) {
  Write(kTwo);
  ASSERT_EQ(::chmod(Path().c_str(), 0666), 0);
  const absl::Status status = Namespaces::Open(Path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

TEST_F(NamespacesTest, AChangeCountsAndAMistakeDoesNot) {
  Write(kTwo);
  const auto namespaces = MustOpen();
  Write("research: {devices: 2}\n");
  namespaces->Refresh();
  EXPECT_EQ(namespaces->DeviceQuota("research"), 2U);
  Write("research: {devices: }}\n");
  namespaces->Refresh();
  EXPECT_EQ(namespaces->DeviceQuota("research"), 2U);
  ASSERT_EQ(::unlink(Path().c_str()), 0);
  namespaces->Refresh();
  EXPECT_EQ(namespaces->DeviceQuota("research"), 2U);
}

TEST(CommonRoots, AreTheNarrowerOfEachPair) {
  EXPECT_THAT(CommonRoots({"/data/a", "/ckpt"}, {"/data"}), ElementsAre("/data/a"));
  EXPECT_THAT(CommonRoots({"/data"}, {"/data/a", "/data/b", "/x"}),
              ElementsAre("/data/a", "/data/b"));
  EXPECT_THAT(CommonRoots({"/data"}, {"/data"}), ElementsAre("/data"));
  EXPECT_THAT(CommonRoots({"/data/ab"}, {"/data/a"}), IsEmpty());
}

}  // namespace
}  // namespace trainyard::controller
