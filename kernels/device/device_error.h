// The only exception type: a device or a communicator failed, and this process ends.

#pragma once

#include <stdexcept>
#include <string>

namespace trainyard {

class DeviceError : public std::runtime_error {
 public:
  enum class Kind { kDevice, kPeerLost };
  DeviceError(Kind kind, const std::string& what) : std::runtime_error(what), kind(kind) {}
  Kind kind;
};

}  // namespace trainyard
