#include "proto/declared_numbers.h"

#include <iomanip>
#include <set>
#include <sstream>
#include <string>

#include "trainyard/v1/step.pb.h"

namespace trainyard {
namespace {

using google::protobuf::FieldDescriptor;

// The type of a number as C++ spells it. Null: a number has no such type.
const char* TypeOf(const FieldDescriptor& field) {
  if (field.is_repeated()) return nullptr;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "double";
    case FieldDescriptor::CPPTYPE_UINT64:
      return "uint64_t";
    case FieldDescriptor::CPPTYPE_UINT32:
      return "uint32_t";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "bool";
    default:
      return nullptr;
  }
}

}  // namespace

bool PrintNumbers(const google::protobuf::Descriptor& message, std::ostream& numbers,
                  std::ostream& mistakes) {
  bool good = true;
  std::ostringstream visits;
  std::set<std::string> metrics;
  numbers << "struct StepNumbers {\n";
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (!field.options().HasExtension(v1::number)) continue;
    const v1::Number& option = field.options().GetExtension(v1::number);
    const std::string metric = option.metric().empty() ? field.name() : option.metric();
    const auto refuse = [&](bool wrong, const char* why) {
      if (wrong) mistakes << field.name() << ": " << why << "\n";
      good &= !wrong;
    };
    const char* const type = TypeOf(field);
    refuse(type == nullptr, "a number of a step is one double, uint64, uint32 or bool");
    refuse(option.help().empty(), "the option `number` must say what a bad value means (help)");
    refuse(!metrics.insert(metric).second, "another number has this `metric`");
    if (!good) continue;
    const std::string held =
        field.has_presence() ? std::string("std::optional<") + type + ">" : type;
    numbers << "  " << held << " " << field.name() << " = {};\n";
    visits << "  visit(StepNumber{\"" << field.name() << "\", \"" << metric << "\", "
           << std::quoted(option.help()) << "}, numbers." << field.name() << ");\n";
  }
  numbers << "};\n\ntemplate <typename Numbers, typename Visit>\n"
          << "constexpr void ForEachNumber(Numbers& numbers, Visit&& visit) {\n"
          << visits.str() << "}\n";
  return good;
}

}  // namespace trainyard
