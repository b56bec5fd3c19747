// The credential that a caller shows to a controller, the authority that must prove the controller
// to the caller, and the files in which both lie.
//
//   CONFIG/loopback/HOST:PORT                   the token of a controller on this machine; the
//                                               controller writes the file for its own user
//   CONFIG/controllers/HOST:PORT/token          the token that `trainyard login` was given
//   CONFIG/controllers/HOST:PORT/authority.pem  the authority that proves this controller
//
// All functions may be called from any thread.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "security/certificates.h"
#include "security/secret_file.h"

namespace trainyard {

// Where to look for credentials. An empty place is not looked at.
struct CredentialPlaces {
  std::string token_file = {};                    // The user names this and the next file.
  std::string authority_file = {};                // PEM.
  std::string config_directory = {};              // HOME/.config/trainyard.
  SecretReaders readers = SecretReaders::kOwner;  // Who may read the files that the user names.
};

struct Credential {
  std::string token = {};  // Sent with each call; empty: none.
  // PEM. One of these authorities must have signed the controller's certificate. Empty: no TLS.
  std::string authorities = {};
  Identity identity = {};  // Shown in the TLS handshake; empty: none.

  bool operator==(const Credential& other) const;
};

// Returns the directory HOME/.config/trainyard, by the variables XDG_CONFIG_HOME and HOME. Each may
// be null. Empty: neither variable holds an absolute path.
std::string ConfigDirectory(const char* xdg_config_home, const char* home);

// Returns the credential for the controller at this address. The files that the user names come
// first, then those of `trainyard login`, then, on loopback, the file that the controller has
// written. FAILED_PRECONDITION, with advice: the address is off loopback and no authority is known
// for its controller, because callers use TLS everywhere but on loopback; or others may read a file
// that holds a token (secret_file.h). NOT_FOUND: a file that the user names does not exist.
absl::StatusOr<Credential> FindCredential(const CredentialPlaces& places,
                                          const Address& controller);

// Writes the file CONFIG/loopback/HOST:PORT. A controller does this for its own user.
absl::Status PublishToken(const std::string& config_directory, const Address& controller,
                          const std::string& token);
// Removes the file, unless it holds the token of another controller.
void WithdrawToken(const std::string& config_directory, const Address& controller,
                   const std::string& token);

// `trainyard login` and `trainyard logout` use these. `credential` has a token and authorities.
absl::Status SaveLogin(const std::string& config_directory, const Address& controller,
                       const Credential& credential);
absl::Status RemoveLogin(const std::string& config_directory, const Address& controller);

// A token as it is handed to somebody. The first line is the token. The second line is the
// fingerprint of the authority that proves the controller (certificates.h). So whoever gets the
// text in secret also knows the right controller.
struct Invitation {
  std::string token;
  std::string fingerprint;  // Empty: the controller has no TLS.
};
std::string ToText(const Invitation& invitation);
// INVALID_ARGUMENT: the text is not one token and at most one fingerprint. The message quotes no
// part of the text.
absl::StatusOr<Invitation> ParseInvitation(absl::string_view text);

}  // namespace trainyard
