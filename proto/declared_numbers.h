// The struct in common/step_numbers.h, which the build makes of the option `number` (step.proto).

#pragma once

#include <google/protobuf/descriptor.h>

#include <ostream>

namespace trainyard {

// Prints a struct StepNumbers with a member for each field of `message` that has the option
// `number`, and a function ForEachNumber that visits these members, in the order of the fields.
// Returns false after printing what is wrong with an option: the field has another type than those
// of a number, the gauge has no help, or two fields have one gauge.
bool PrintNumbers(const google::protobuf::Descriptor& message, std::ostream& numbers,
                  std::ostream& mistakes);

}  // namespace trainyard
