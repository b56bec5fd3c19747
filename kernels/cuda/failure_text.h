// The message of a kernel that has failed (failure.h), for the host. Whichever library is called
// next notices the failure, so the errors of each contain the message.

#pragma once

#include <string>

namespace trainyard::cuda {

// Returns the message of the kernel that failed in this process. Empty: none has.
std::string FailureText();
// Returns the text of an error, and behind it the message of the kernel that failed, if one has.
std::string WithFailure(const std::string& error);

}  // namespace trainyard::cuda
