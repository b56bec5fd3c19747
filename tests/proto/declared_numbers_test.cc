// Proves that the build makes a struct of the numbers of a step, and refuses an option that would
// make none, or whose gauge nobody could read.
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/declared_rows.h"

namespace trainyard {
namespace {

using ::testing::IsEmpty;

// What the build makes of a message with these fields, which are text of a DescriptorProto.
struct DeclaredStep {
  bool good = false;
  std::string numbers, mistakes;
};
DeclaredStep DeclareStep(const std::string& fields) {
  google::protobuf::FileDescriptorProto file;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(name: "t.proto" syntax: "proto3" message_type { name: "Step" )" + fields + "}", &file));
  google::protobuf::DescriptorPool pool;
  const google::protobuf::FileDescriptor* const built = pool.BuildFile(file);
  EXPECT_NE(built, nullptr) << file.DebugString();
  if (built == nullptr) return {};
  std::ostringstream numbers, mistakes;
  const bool good = PrintNumbers(*built->message_type(0), numbers, mistakes);
  return {good, numbers.str(), mistakes.str()};
}

// A field whose option `number` has this text.
std::string Field(const std::string& name, int number, const std::string& type,
                  const std::string& option, const std::string& label = "LABEL_OPTIONAL") {
  return "field { name: '" + name + "' number: " + std::to_string(number) + " type: TYPE_" + type +
         " label: " + label + " options { [trainyard.v1.number] { " + option + " } } }";
}

TEST(DeclaredNumbersTest, AFieldBecomesAMemberOfItsType) {
  const DeclaredStep declared = DeclareStep(
      Field("loss", 9, "DOUBLE", R"(help: "Not \"good\".")") +
      Field("tokens", 2, "UINT64", "help: 'T.'") +
      "field { name: 'seconds' number: 3 type: TYPE_DOUBLE label: LABEL_OPTIONAL }"
      "field { name: 'even' number: 4 type: TYPE_BOOL label: LABEL_OPTIONAL proto3_optional: true "
      "oneof_index: 0 options { [trainyard.v1.number] { metric: 'even_ratio' help: 'E.' } } }"
      "oneof_decl { name: '_even' }");
  EXPECT_TRUE(declared.good);
  EXPECT_THAT(declared.mistakes, IsEmpty());
  EXPECT_EQ(declared.numbers, R"(struct StepNumbers {
  double loss = {};
  uint64_t tokens = {};
  std::optional<bool> even = {};
};

template <typename Numbers, typename Visit>
constexpr void ForEachNumber(Numbers& numbers, Visit&& visit) {
  visit(StepNumber{"loss", "loss", "Not \"good\"."}, numbers.loss);
  visit(StepNumber{"tokens", "tokens", "T."}, numbers.tokens);
  visit(StepNumber{"even", "even_ratio", "E."}, numbers.even);
}
)");
}

TEST(DeclaredNumbersTest, AWrongOptionIsRefused) {
  struct Case {
    std::string fields, says;
  };
  const std::string type = "a: a number is one double, uint64, uint32 or bool\n";
  for (const Case& wrong : {Case{Field("a", 1, "STRING", "help: 'A.'"), type},
                            Case{Field("a", 1, "DOUBLE", "help: 'A.'", "LABEL_REPEATED"), type},
                            Case{Field("a", 1, "DOUBLE", "metric: 'a'"),
                                 "a: the option `number` must say what a bad value means (help)\n"},
                            Case{Field("a", 1, "DOUBLE", "help: 'A.'") +
                                     Field("b", 2, "DOUBLE", "metric: 'a' help: 'B.'"),
                                 "b: another number has this `metric`\n"}}) {
    const DeclaredStep declared = DeclareStep(wrong.fields);
    EXPECT_FALSE(declared.good) << wrong.says;
    EXPECT_EQ(declared.mistakes, wrong.says);
  }
}

}  // namespace
}  // namespace trainyard
