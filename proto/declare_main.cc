// Prints the option `field` of each field of JobSpec that has one, as a row of the table in
// common/declared.h. Fails if a text does not say whether it is a path. Runs while the build is
// made.

#include <google/protobuf/descriptor.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <string>

#include "trainyard/v1/job_spec.pb.h"

namespace trainyard {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// A number as a literal that stands for it exactly.
std::string Literal(double number) {
  if (number == std::trunc(number) && std::abs(number) < 1e18) {
    return std::to_string(int64_t(number));
  }
  char digits[32];
  return {digits, std::to_chars(digits, std::end(digits), number).ptr};
}

// "TYPE_ONE_TWO" as "Type::kOneTwo".
std::string Enumerator(const std::string& type, const std::string& prefix,
                       const std::string& name) {
  std::string out = type + "::k";
  bool begins = true;
  for (const char c : name.substr(prefix.size())) {
    if (c != '_') out += begins ? c : char(std::tolower(c));
    begins = c == '_';
  }
  return out;
}

std::string Limits(const FieldDescriptor& field, const v1::Field& option) {
  std::string limits;
  const auto end = [&](const char* name, bool given, double number) {
    if (given) limits += std::string(".") + name + " = " + Literal(number) + ", ";
  };
  end("least", option.has_least(), option.least());
  end("above", option.has_above(), option.above());
  end("most", option.has_most(), option.most());
  end("below", option.has_below(), option.below());
  if (limits.empty()) return "";
  if (!option.zero().empty()) limits += ".zero = \"" + option.zero() + "\", ";
  if (!option.note().empty()) limits += ".note = \"" + option.note() + "\", ";
  const bool real = field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  return (real ? ".real = Interval{" : ".whole = WholeNumbers{") + limits + "}, ";
}

std::string Row(const std::string& path, const FieldDescriptor& field) {
  const v1::Field& option = field.options().GetExtension(v1::field);
  std::string row = "{.path = \"" + path + "\", " + Limits(field, option);
  if (option.has_standard()) {
    row += ".standard = " + Literal(option.standard()) + ", ";
    if (!field.has_presence()) row += ".zero_is_standard = true, ";
  }
  std::string names;
  for (const std::string& name : option.names()) names += (names.empty() ? "" : " ") + name;
  row += ".names = \"" + names + "\", ";
  if (option.change() != v1::Field::CHANGE_UNSPECIFIED) {
    const std::string& change = v1::Field::Change_Name(option.change());
    row += ".change = " + Enumerator("ChangeEffect", "CHANGE_", change) + ", ";
  }
  if (option.path() != v1::Field::PATH_UNSPECIFIED) {
    const std::string& use = v1::Field::Path_Name(option.path());
    row += ".use = " + Enumerator("PathUse", "PATH_", use) + ", ";
  }
  return row + "},\n";
}

// Returns whether all fields are declared as they must be.
bool PrintRows(const Descriptor& message, const std::string& prefix) {
  bool good = true;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string path = prefix + field.name();
    const v1::Field& option = field.options().GetExtension(v1::field);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
        option.path() == v1::Field::PATH_UNSPECIFIED) {
      std::cerr << path << ": the option `field` must say whether the text is a path\n";
      good = false;
    }
    if (field.options().HasExtension(v1::field)) std::cout << Row(path, field);
    if (field.message_type() != nullptr && !field.is_map()) {
      good &= PrintRows(*field.message_type(), path + (field.is_repeated() ? "[]." : "."));
    }
  }
  return good;
}

}  // namespace
}  // namespace trainyard

int main() {
  const bool good = trainyard::PrintRows(*trainyard::v1::JobSpec::descriptor(), "");
  return good && std::cout.flush() ? 0 : 1;
}
