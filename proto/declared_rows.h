// What the build makes of the options of fields: of `field` (field.proto) the table in
// common/declared.h, and of `number` (step.proto) the struct in common/step_numbers.h.

#pragma once

#include <google/protobuf/descriptor.h>

#include <ostream>
#include <string>

namespace trainyard {

// Prints a row for each field below `message` that has the option `field`. `prefix` begins the
// paths of the fields. Returns false after printing what is wrong with an option: a text does not
// say whether it is a path, or a member is one that nobody would read.
bool PrintRows(const google::protobuf::Descriptor& message, const std::string& prefix,
               std::ostream& rows, std::ostream& mistakes);

// Prints a struct StepNumbers with a member for each field of `message` that has the option
// `number`, and a function ForEachNumber that visits these members, in the order of the fields.
// Returns false after printing what is wrong with an option: the field has no type of a number, the
// gauge has no help, or two fields have one gauge.
bool PrintNumbers(const google::protobuf::Descriptor& message, std::ostream& numbers,
                  std::ostream& mistakes);

}  // namespace trainyard
