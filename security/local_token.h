// How the callers of a controller on this machine's loopback get its token. The controller keeps
// the token in its state directory and, for its own user, in
// HOME/.config/trainyard/loopback/HOST:PORT. Other users reach the port, too; they cannot read the
// file.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/address.h"

namespace trainyard {

// Where a caller looks for its token.
struct TokenPlaces {
  std::string file;              // Named by the user; empty: not.
  std::string config_directory;  // HOME/.config/trainyard; empty: there is no home.
};

// HOME/.config/trainyard from the variables XDG_CONFIG_HOME and HOME, either of which may be null.
// Empty: none is set.
std::string ConfigDirectory(const char* xdg_config_home, const char* home);

// The named file's token, or else, for an address on loopback, that of its controller. Empty: there
// is none. Errors: of the named file, and of a file that others may read (secret_file.h).
absl::StatusOr<std::string> FindToken(const TokenPlaces& places, const Address& controller);

// What a controller does with its token for its own user's callers.
absl::Status PublishToken(const std::string& config_directory, const Address& controller,
                          const std::string& token);
// Removes it, unless another controller has put its own in its place.
void WithdrawToken(const std::string& config_directory, const Address& controller,
                   const std::string& token);

}  // namespace trainyard
