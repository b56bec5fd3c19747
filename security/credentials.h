// What a caller shows a controller, what it wants to see of the controller, and where both lie.
//
//   CONFIG/loopback/HOST:PORT               the token of a controller on this machine: kept there
//   by
//                                           the controller for its own user, whom alone it serves
//   CONFIG/controllers/HOST:PORT/token      what `trainyard login` was given
//   CONFIG/controllers/HOST:PORT/authority.pem
//
// All functions may be called from any thread.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/address.h"
#include "security/certificates.h"
#include "security/secret_file.h"

namespace trainyard {

// Where a caller looks. Empty: not there.
struct CredentialPlaces {
  std::string token_file = {};                    // Named by the user, as is the next.
  std::string authority_file = {};                // PEM.
  std::string config_directory = {};              // HOME/.config/trainyard.
  SecretReaders readers = SecretReaders::kOwner;  // Of the files that the user names.
};

struct Credential {
  std::string token = {};  // Goes with each call; empty: none.
  std::string authorities =
      {};                  // PEM; one of them must have signed for the controller. Empty: no TLS.
  Identity identity = {};  // Shown in the TLS handshake; empty: none.

  bool operator==(const Credential& other) const;
};

// HOME/.config/trainyard from the variables XDG_CONFIG_HOME and HOME, either of which may be null.
// Empty: none is set.
std::string ConfigDirectory(const char* xdg_config_home, const char* home);

// What is shown to the controller at this address: what the user named, else what `login` left,
// else, on loopback, what the controller left. Without TLS nothing but loopback is dialled.
// FAILED_PRECONDITION, with what to do: the address is off loopback, and no authority is known for
// its controller; or others may read a file that holds a token (secret_file.h). NOT_FOUND: a named
// file is not there.
absl::StatusOr<Credential> FindCredential(const CredentialPlaces& places,
                                          const Address& controller);

// What a controller does with its token for its own user's callers on this machine.
absl::Status PublishToken(const std::string& config_directory, const Address& controller,
                          const std::string& token);
// Removes it, unless another controller has put its own in its place.
void WithdrawToken(const std::string& config_directory, const Address& controller,
                   const std::string& token);

// What `login` and `logout` do. `credential` has a token and authorities.
absl::Status SaveLogin(const std::string& config_directory, const Address& controller,
                       const Credential& credential);
absl::Status RemoveLogin(const std::string& config_directory, const Address& controller);

// What a token is handed over as: its text, and under it the fingerprint of the authority that
// proves the controller (certificates.h), so that who gets it needs no other secret channel.
struct Invitation {
  std::string token;
  std::string fingerprint;  // Empty: of a controller without TLS.
};
std::string ToText(const Invitation& invitation);
// INVALID_ARGUMENT: wanted one token and at most one fingerprint. Quotes nothing.
absl::StatusOr<Invitation> ParseInvitation(absl::string_view text);

}  // namespace trainyard
