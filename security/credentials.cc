#include "security/credentials.h"

#include <unistd.h>

#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "security/secret_file.h"
#include "security/tokens.h"

namespace trainyard {
namespace {

std::string LoopbackDirectory(const std::string& config_directory) {
  return absl::StrCat(config_directory, "/loopback");
}
std::string LoopbackPath(const std::string& config_directory, const Address& controller) {
  return absl::StrCat(LoopbackDirectory(config_directory), "/", controller.ToString());
}
std::string LoginDirectory(const std::string& config_directory, const Address& controller) {
  return absl::StrCat(config_directory, "/controllers/", controller.ToString());
}

// Reads the token of a file that may also hold a fingerprint.
absl::StatusOr<std::string> ReadToken(const std::string& path,
                                      SecretReaders readers = SecretReaders::kOwner) {
  ASSIGN_OR_RETURN(const std::string text, ReadSecret(path, readers));
  const absl::StatusOr<Invitation> invitation = ParseInvitation(text);
  if (!invitation.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", invitation.status().message()));
  }
  return invitation->token;
}

template <typename T>
absl::StatusOr<T> OrIfAbsent(absl::StatusOr<T> value, T otherwise) {
  if (absl::IsNotFound(value.status())) return otherwise;
  return value;
}

absl::StatusOr<std::string> FindToken(const CredentialPlaces& places, const Address& controller) {
  if (!places.token_file.empty()) return ReadToken(places.token_file, places.readers);
  if (places.config_directory.empty()) return "";
  const std::string login =
      absl::StrCat(LoginDirectory(places.config_directory, controller), "/token");
  ASSIGN_OR_RETURN(const std::string token, OrIfAbsent<std::string>(ReadToken(login), ""));
  if (!token.empty() || !controller.loopback()) return token;
  return OrIfAbsent<std::string>(ReadToken(LoopbackPath(places.config_directory, controller)), "");
}

absl::StatusOr<std::string> FindAuthorities(const CredentialPlaces& places,
                                            const Address& controller) {
  if (!places.authority_file.empty()) return ReadFile(places.authority_file, 1 << 20);
  if (places.config_directory.empty()) return "";
  return OrIfAbsent<std::string>(
      ReadFile(absl::StrCat(LoginDirectory(places.config_directory, controller), "/authority.pem"),
               1 << 20),
      "");
}

}  // namespace

bool Credential::operator==(const Credential& other) const {
  return std::tie(token, authorities, identity.key_pem, identity.certificate_pem) ==
         std::tie(other.token, other.authorities, other.identity.key_pem,
                  other.identity.certificate_pem);
}

std::string ConfigDirectory(const char* xdg_config_home, const char* home) {
  if (xdg_config_home != nullptr && *xdg_config_home == '/') {
    return absl::StrCat(xdg_config_home, "/trainyard");
  }
  return home != nullptr && *home == '/' ? absl::StrCat(home, "/.config/trainyard") : "";
}

absl::StatusOr<Credential> FindCredential(const CredentialPlaces& places,
                                          const Address& controller) {
  Credential credential;
  ASSIGN_OR_RETURN(credential.authorities, FindAuthorities(places, controller));
  if (credential.authorities.empty() && !controller.loopback()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no authority is known that proves the controller at ", controller.ToString(),
        ": run 'trainyard login ", controller.ToString(),
        "', or name its authority's certificate with --authority or TRAINYARD_AUTHORITY"));
  }
  ASSIGN_OR_RETURN(credential.token, FindToken(places, controller));
  return credential;
}

absl::Status PublishToken(const std::string& config_directory, const Address& controller,
                          const std::string& token) {
  RETURN_IF_ERROR(MakeSecretDirectory(LoopbackDirectory(config_directory)));
  return WriteSecret(LoopbackPath(config_directory, controller), token + "\n");
}

void WithdrawToken(const std::string& config_directory, const Address& controller,
                   const std::string& token) {
  const std::string path = LoopbackPath(config_directory, controller);
  const auto published = ReadToken(path);
  if (published.ok() && *published == token) ::unlink(path.c_str());
}

absl::Status SaveLogin(const std::string& config_directory, const Address& controller,
                       const Credential& credential) {
  const std::string directory = LoginDirectory(config_directory, controller);
  RETURN_IF_ERROR(MakeSecretDirectory(directory));
  RETURN_IF_ERROR(WriteFileAtomic(directory + "/authority.pem", credential.authorities));
  return WriteSecret(directory + "/token", credential.token + "\n");
}

absl::Status RemoveLogin(const std::string& config_directory, const Address& controller) {
  return RemoveTree(LoginDirectory(config_directory, controller));
}

std::string ToText(const Invitation& invitation) {
  return absl::StrCat(invitation.token, "\n", invitation.fingerprint,
                      invitation.fingerprint.empty() ? "" : "\n");
}

absl::StatusOr<Invitation> ParseInvitation(absl::string_view text) {
  Invitation invitation;
  for (absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())) {
    std::string& field =
        absl::StartsWith(word, "sha256:") ? invitation.fingerprint : invitation.token;
    if (!field.empty()) return absl::InvalidArgumentError("wanted one token, found more words");
    field = std::string(word);
  }
  if (invitation.token.empty()) return absl::InvalidArgumentError("wanted a token, found none");
  return invitation;
}

}  // namespace trainyard
