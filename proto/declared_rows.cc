#include "proto/declared_rows.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "trainyard/v1/field.pb.h"
#include "trainyard/v1/step.pb.h"

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

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() != FieldDescriptor::CPPTYPE_STRING && field.enum_type() == nullptr &&
         field.message_type() == nullptr;
}

// What is wrong with the option of a field. A member that nobody would read is an error, because
// its author believes that it holds.
std::vector<std::string> Mistakes(const std::string& path, const FieldDescriptor& field) {
  const v1::Field& option = field.options().GetExtension(v1::field);
  std::vector<std::string> mistakes;
  const auto refuse = [&](bool wrong, const char* why) {
    if (wrong) mistakes.push_back(path + ": " + why);
  };
  const bool text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  const bool flag = field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL;
  const bool real = field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  const bool ends =
      option.has_least() || option.has_above() || option.has_most() || option.has_below();
  refuse(text && option.path() == v1::Field::PATH_UNSPECIFIED,
         "the option `field` must say whether the text is a path");
  refuse(!text && option.path() != v1::Field::PATH_UNSPECIFIED, "only a text can be a path");
  refuse(ends && (flag || !IsNumber(field)), "only a number has limits");
  refuse(option.has_least() && option.has_above(), "`least` and `above` are the same end");
  refuse(option.has_most() && option.has_below(), "`most` and `below` are the same end");
  refuse(!ends && (!option.zero().empty() || !option.note().empty()),
         "without limits nobody reads `zero` and `note`");
  refuse(option.has_standard() && !IsNumber(field), "only a number or a flag has a `standard`");
  refuse(flag && option.has_standard() && option.standard() != 0 && option.standard() != 1,
         "the `standard` of a flag is 0 or 1");
  for (const auto& [member, number] :
       std::initializer_list<std::pair<const char*, double>>{{"least", option.least()},
                                                             {"above", option.above()},
                                                             {"most", option.most()},
                                                             {"below", option.below()},
                                                             {"standard", option.standard()}}) {
    const bool whole = number == std::trunc(number) && std::abs(number) <= double(int64_t{1} << 53);
    const std::string why = std::string("`") + member + "` is " + Literal(number) +
                            "; wanted a whole number of at most 2^53, which a double has exactly";
    refuse(!real && !whole, why.c_str());
  }
  // These depend on the family, which declares them (models/arch/fields.h).
  const bool of_model =
      path.starts_with("model.architecture.") || path.starts_with("model.overrides.");
  refuse(of_model && (ends || option.has_standard() || option.path() > v1::Field::PATH_NONE ||
                      option.change() != v1::Field::CHANGE_UNSPECIFIED),
         "a family declares limits, defaults and changes of its fields in models/families/");
  return mistakes;
}

}  // namespace

bool PrintRows(const Descriptor& message, const std::string& prefix, std::ostream& rows,
               std::ostream& mistakes) {
  bool good = true;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string path = prefix + field.name();
    for (const std::string& mistake : Mistakes(path, field)) {
      mistakes << mistake << "\n";
      good = false;
    }
    if (field.options().HasExtension(v1::field)) rows << Row(path, field);
    if (field.message_type() != nullptr && !field.is_map()) {
      good &= PrintRows(*field.message_type(), path + (field.is_repeated() ? "[]." : "."), rows,
                        mistakes);
    }
  }
  return good;
}

bool PrintNumbers(const Descriptor& message, std::ostream& numbers, std::ostream& mistakes) {
  bool good = true;
  std::ostringstream visits;
  std::set<std::string> metrics;
  numbers << "struct StepNumbers {\n";
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (!field.options().HasExtension(v1::number)) continue;
    const v1::Number& option = field.options().GetExtension(v1::number);
    const std::string metric = option.metric().empty() ? field.name() : option.metric();
    const std::string type = field.cpp_type_name();
    const auto refuse = [&](bool wrong, const char* why) {
      if (wrong) mistakes << field.name() << ": " << why << "\n";
      good &= !wrong;
    };
    const bool legal = std::set<std::string>{"double", "uint64", "uint32", "bool"}.contains(type);
    refuse(!legal || field.is_repeated(), "a number is one double, uint64, uint32 or bool");
    refuse(option.help().empty(), "the option `number` must say what a bad value means (help)");
    refuse(!metrics.insert(metric).second, "another number has this `metric`");
    const std::string member = type.starts_with("uint") ? type + "_t" : type;
    numbers << "  " << (field.has_presence() ? "std::optional<" + member + ">" : member) << " "
            << field.name() << " = {};\n";
    visits << "  visit(StepNumber{\"" << field.name() << "\", \"" << metric << "\", "
           << std::quoted(option.help()) << "}, numbers." << field.name() << ");\n";
  }
  numbers << "};\n\ntemplate <typename Numbers, typename Visit>\n"
          << "constexpr void ForEachNumber(Numbers& numbers, Visit&& visit) {\n"
          << visits.str() << "}\n";
  return good;
}

}  // namespace trainyard
