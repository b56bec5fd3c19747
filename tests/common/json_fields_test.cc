// Proves that a struct survives the way through JSON by its one declaration, that fields of earlier
// and later releases are taken as said, and that what is wrong is named with its path.

#include "common/json_fields.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace trainyard {

enum class Colour : uint8_t { kRed = 1, kBlue = 7 };
static const char* Name(Colour colour) { return colour == Colour::kRed ? "red" : "blue"; }

struct Leaf {
  uint32_t size = 0;
  double weight = 0;
};
struct Link {
  uint64_t from = 0;
  uint64_t to = 0;
};
struct Dims {
  std::vector<int64_t> dims;
};
struct Tree {
  std::string name;
  bool tall = false;
  int16_t height = 0;
  uint64_t seed = 0;
  int64_t rings = 0;
  Colour paint = Colour::kRed;
  Colour flower = Colour::kBlue;
  absl::Time planted;
  std::optional<double> fruit;
  std::optional<Leaf> crown;
  std::vector<Leaf> leaves;
  std::vector<Link> links;
  std::set<std::string> birds;
  std::map<std::string, uint32_t> counts;
  std::string sap;
  Dims dims;
  int later = 5;
  std::vector<std::string> pests;
};

template <typename V>
static void VisitFields(V& v, Leaf& leaf) {
  v("size", leaf.size), v("weight", leaf.weight);
}
template <typename V>
static void VisitFields(V& v, Link& link) {
  v.Pair("from", link.from, "to", link.to);
}
template <typename V>
static void VisitFields(V& v, Dims& dims) {
  v.Wholes(dims.dims, 3);
}
template <typename V>
static void VisitFields(V& v, Tree& tree) {
  v("name", tree.name), v("tall", tree.tall), v("height", tree.height), v("seed", tree.seed);
  v.Whole("rings", tree.rings), v("paint", tree.paint);
  v.Named("flower", tree.flower, {Colour::kRed, Colour::kBlue});
  v("planted", tree.planted), v("fruit", tree.fruit), v("crown", tree.crown);
  v("leaves", tree.leaves), v("links", tree.links), v("birds", tree.birds);
  v("counts", tree.counts), v.Bytes("sap", tree.sap), v("dims", tree.dims);
  v.Later("later", tree.later), v.Seldom("pests", tree.pests);
}

namespace {

using Json = nlohmann::json;

Tree Whole() {
  return {.name = "oak \"x\"",
          .tall = true,
          .height = -300,
          .seed = std::numeric_limits<uint64_t>::max(),
          .rings = kMostWhole,
          .paint = Colour::kBlue,
          .flower = Colour::kRed,
          .planted = absl::FromUnixMicros(-1'234'567),
          .fruit = 0.1,
          .crown = Leaf{.size = 1, .weight = std::nan("")},
          .leaves = {{.size = 2, .weight = 5e-324}, {.size = 4294967295, .weight = -0.0}},
          .links = {{1, 2}, {3, 4}},
          .birds = {"b", "a"},
          .counts = {{"x", 1}, {"", 2}},
          .sap = std::string("\0\xff", 2),
          .dims = {{0, 5}},
          .later = 6,
          .pests = {"gall wasp"}};
}

Json Written(const Tree& tree) {
  Json json;
  WriteFields(json, tree);
  return json;
}

TEST(JsonFields, AStructIsTheSameAfterItsJson) {
  const Json json = Written(Whole());
  Tree read;
  ASSERT_TRUE(ReadFields(Json::parse(json.dump()), read).ok());
  EXPECT_EQ(Written(read).dump(), json.dump());
  EXPECT_EQ(read.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(read.paint, Colour::kBlue);
  EXPECT_EQ(read.flower, Colour::kRed);
  EXPECT_EQ(read.planted, Whole().planted);
  EXPECT_TRUE(std::isnan(read.crown->weight));
  EXPECT_EQ(read.leaves[0].weight, 5e-324);
  EXPECT_TRUE(std::signbit(read.leaves[1].weight));
  EXPECT_EQ(read.sap, Whole().sap);
  EXPECT_EQ(read.counts, Whole().counts);
}

TEST(JsonFields, NumbersThatJsonLacksAreNull) {
  Tree tree = Whole();
  tree.fruit = -std::numeric_limits<double>::infinity();
  Tree read;
  ASSERT_TRUE(ReadFields(Json::parse(Written(tree).dump()), read).ok());
  EXPECT_TRUE(std::isnan(*read.fruit));
}

TEST(JsonFields, WhatIsAbsentKeepsItsValueOnlyWhereItMay) {
  const Json whole = Written(Whole());
  for (const auto& [name, value] : whole.items()) {
    Json without = whole;
    without.erase(name);
    Tree read;
    const absl::Status status = ReadFields(without, read);
    const bool may = name == "later" || name == "fruit" || name == "crown" || name == "pests";
    EXPECT_EQ(status.ok(), may) << name;
    EXPECT_EQ(status.message(), may ? "" : name + ": wanted a value, found none");
    if (!may) continue;
    EXPECT_EQ(read.later, name == "later" ? 5 : 6);
    EXPECT_EQ(read.crown.has_value(), name != "crown");
  }
}

TEST(JsonFields, WhatMostDoWithoutIsWrittenOnlyWhereItIs) {
  Tree tree = Whole();
  tree.pests.clear();
  Json json = Written(tree);
  EXPECT_FALSE(json.contains("pests"));
  Tree read;
  read.pests = {"of an earlier tree"};
  ASSERT_TRUE(ReadFields(json, read).ok());
  EXPECT_TRUE(read.pests.empty());
  ASSERT_TRUE(ReadFields(Written(Whole()), read).ok());
  EXPECT_EQ(read.pests, Whole().pests);
}

TEST(JsonFields, WhatIsWrongIsNamedWithItsPath) {
  struct Case {
    const char* pointer;
    Json value;
    const char* message;
  };
  const Case cases[] = {
      {"/name", 7, "tree.name: wanted a text"},
      {"/tall", 1, "tree.tall: wanted true or false"},
      {"/height", 40000, "tree.height: wanted a whole number that fits"},
      {"/seed", -1, "tree.seed: wanted a whole number from 0 that fits"},
      {"/rings", -1, "tree.rings: wanted a whole number from 0 to 2^62"},
      {"/rings", (uint64_t{1} << 62) + 1, "tree.rings: wanted a whole number from 0 to 2^62"},
      {"/paint", 256, "tree.paint: wanted a whole number from 0 that fits"},
      {"/flower", "green", "tree.flower: wanted one of red, blue"},
      {"/planted", 0.5, "tree.planted: wanted a whole number that fits"},
      {"/fruit", "1", "tree.fruit: wanted a number or null"},
      {"/crown", Json::array(), "tree.crown: wanted an object"},
      {"/leaves/1/size", uint64_t{1} << 32, "tree.leaves[1].size: wanted a whole number"},
      {"/leaves", Json::object(), "tree.leaves: wanted a list"},
      {"/links/0", {1, 2, 3}, "tree.links[0]: wanted a list of two numbers"},
      {"/links/0/1", -2, "tree.links[0]: wanted a whole number from 0 that fits"},
      {"/birds/0", nullptr, "tree.birds[0]: wanted a text"},
      {"/counts/x", "1", "tree.counts: wanted a whole number from 0 that fits"},
      {"/sap", "*", "tree.sap: wanted base64"},
      {"/dims", {1, 2, 3, 4}, "tree.dims: wanted a list of at most 3 numbers"},
      {"/later", true, "tree.later: wanted a whole number that fits"},
  };
  for (const Case& one : cases) {
    Json json = Written(Whole());
    json[Json::json_pointer(one.pointer)] = one.value;
    Tree read;
    const absl::Status status = ReadFields(json, read, "tree");
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << one.pointer;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(one.message)) << one.pointer;
  }
  Tree read;
  EXPECT_EQ(ReadFields(Json(3), read).message(), "wanted an object");
}

}  // namespace
}  // namespace trainyard
