// How ranks find each other before they are connected: a small key/value store that all ranks of a
// gang can reach.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainyard {

// A key may be set once. Values are bytes.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits until a rank has set the key. DEADLINE_EXCEEDED names the key.
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) = 0;
};

}  // namespace trainyard
