// The table in common/declared.h, which the build makes of the option `field` (field.proto).

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

}  // namespace trainyard
