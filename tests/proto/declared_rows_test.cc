// Proves that the build refuses an option of a field that nobody would read, or that is incomplete.
#include "proto/declared_rows.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>

#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainyard/v1/field.pb.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using google::protobuf::DescriptorProto;
using google::protobuf::FieldDescriptorProto;

struct TestField {
  std::string name;
  FieldDescriptorProto::Type type;
  std::string option = "";   // Text of the option `field`; "": the field has none.
  std::string message = "";  // The type of a message.
  bool repeated = false;
};

DescriptorProto Message(const std::string& name, const std::vector<TestField>& fields) {
  DescriptorProto message;
  message.set_name(name);
  for (const TestField& field : fields) {
    FieldDescriptorProto& one = *message.add_field();
    one.set_name(field.name);
    one.set_number(message.field_size());
    one.set_type(field.type);
    one.set_label(field.repeated ? FieldDescriptorProto::LABEL_REPEATED
                                 : FieldDescriptorProto::LABEL_OPTIONAL);
    if (!field.message.empty()) one.set_type_name(field.message);
    if (field.option.empty()) continue;
    v1::Field* const option = one.mutable_options()->MutableExtension(v1::field);
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(field.option, option));
  }
  return message;
}

// What the build says of the last of the messages.
struct Declared {
  bool good = false;
  std::string rows, mistakes;
};
Declared Declare(const std::vector<DescriptorProto>& messages) {
  google::protobuf::FileDescriptorProto file;
  file.set_name("t.proto");
  file.set_syntax("proto3");
  for (const DescriptorProto& message : messages) *file.add_message_type() = message;
  google::protobuf::DescriptorPool pool;
  const google::protobuf::FileDescriptor* const built = pool.BuildFile(file);
  EXPECT_NE(built, nullptr) << file.DebugString();
  if (built == nullptr) return {};
  std::ostringstream rows, mistakes;
  const bool good =
      PrintRows(*built->FindMessageTypeByName(messages.back().name()), "", rows, mistakes);
  return {good, rows.str(), mistakes.str()};
}

constexpr auto kInt64 = FieldDescriptorProto::TYPE_INT64;
constexpr auto kDouble = FieldDescriptorProto::TYPE_DOUBLE;
constexpr auto kBool = FieldDescriptorProto::TYPE_BOOL;
constexpr auto kString = FieldDescriptorProto::TYPE_STRING;
constexpr auto kMessage = FieldDescriptorProto::TYPE_MESSAGE;

TEST(DeclaredRowsTest, AFieldBecomesARow) {
  const Declared number = Declare(
      {Message("Spec", {{"steps", kInt64, R"(least: 1 most: 9 standard: 4 names: "iters")"}})});
  EXPECT_TRUE(number.good) << number.mistakes;
  EXPECT_THAT(number.rows,
              StartsWith(R"({.path = "steps", .whole = WholeNumbers{.least = 1, .most = 9, }, )"
                         R"(.standard = 4, .zero_is_standard = true, )"));
  EXPECT_THAT(number.rows, HasSubstr(R"(.names = "iters")"));
  const Declared item = Declare({Message("Part", {{"file", kString, "path: PATH_OPTIONAL"}}),
                                 Message("Spec", {{"parts", kMessage, "", "Part", true}})});
  EXPECT_TRUE(item.good) << item.mistakes;
  EXPECT_THAT(item.rows, StartsWith(R"({.path = "parts[].file", )"));
  EXPECT_THAT(item.rows, HasSubstr(".use = PathUse::kOptional"));
}

TEST(DeclaredRowsTest, AnOptionThatNobodyWouldReadIsRefused) {
  struct Case {
    TestField field;
    std::string says;
  };
  for (const Case& wrong : std::vector<Case>{
           {{"a", kString}, "a: the option `field` must say whether the text is a path"},
           {{"a", kInt64, "path: PATH_NONE"}, "a: only a text can be a path"},
           {{"a", kBool, "least: 0"}, "a: only a number has limits"},
           {{"a", kString, "path: PATH_NONE least: 0"}, "a: only a number has limits"},
           {{"a", kDouble, "least: 0 above: 0"}, "a: `least` and `above` are the same end"},
           {{"a", kDouble, "most: 1 below: 1"}, "a: `most` and `below` are the same end"},
           {{"a", kDouble, "zero: 'none'"}, "a: without limits nobody reads `zero` and `note`"},
           {{"a", kMessage, "standard: 1", "Part"}, "a: only a number or a flag has a `standard`"},
           {{"a", kBool, "standard: 2"}, "a: the `standard` of a flag is 0 or 1"},
           {{"a", kInt64, "most: 0.5"}, "a: `most` is 0.5; wanted a whole number"},
           {{"a", kInt64, "most: 1e17"},
            "a: `most` is 100000000000000000; wanted a whole number of at most 2^53"}}) {
    SCOPED_TRACE(wrong.says);
    const Declared declared = Declare({Message("Part", {}), Message("Spec", {wrong.field})});
    EXPECT_FALSE(declared.good);
    EXPECT_THAT(declared.mistakes, StartsWith(wrong.says));
  }
}

// Bug it must catch: limits of a field of the model, beside those of its family.
TEST(DeclaredRowsTest, AFieldOfTheModelHasOnlyItsNames) {
  const auto declare = [](const std::string& option) {
    return Declare({Message("Architecture", {{"layers", kInt64, option}}),
                    Message("Model", {{"architecture", kMessage, "", "Architecture"}}),
                    Message("Spec", {{"model", kMessage, "", "Model"}})});
  };
  EXPECT_TRUE(declare("names: 'num_layers'").good);
  for (const char* option : {"least: 1", "standard: 1", "change: CHANGE_STATE"}) {
    const Declared declared = declare(option);
    EXPECT_FALSE(declared.good) << option;
    EXPECT_THAT(declared.mistakes, StartsWith("model.architecture.layers: a family declares"));
  }
}

}  // namespace
}  // namespace trainyard
