#include "security/local_token.h"

#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "security/secret_file.h"

namespace trainyard {
namespace {

std::string DirectoryIn(const std::string& config_directory) {
  return absl::StrCat(config_directory, "/loopback");
}

std::string PathOf(const std::string& config_directory, const Address& controller) {
  return absl::StrCat(DirectoryIn(config_directory), "/", controller.ToString());
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadSecret(path));
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

}  // namespace

std::string ConfigDirectory(const char* xdg_config_home, const char* home) {
  if (xdg_config_home != nullptr && *xdg_config_home == '/') {
    return absl::StrCat(xdg_config_home, "/trainyard");
  }
  return home != nullptr && *home == '/' ? absl::StrCat(home, "/.config/trainyard") : "";
}

absl::StatusOr<std::string> FindToken(const TokenPlaces& places, const Address& controller) {
  if (!places.file.empty()) return ReadToken(places.file);
  if (places.config_directory.empty() || !controller.loopback()) return "";
  absl::StatusOr<std::string> token = ReadToken(PathOf(places.config_directory, controller));
  if (absl::IsNotFound(token.status())) return "";
  return token;
}

absl::Status PublishToken(const std::string& config_directory, const Address& controller,
                          const std::string& token) {
  RETURN_IF_ERROR(MakeSecretDirectory(DirectoryIn(config_directory)));
  return WriteSecret(PathOf(config_directory, controller), token + "\n");
}

void WithdrawToken(const std::string& config_directory, const Address& controller,
                   const std::string& token) {
  const std::string path = PathOf(config_directory, controller);
  const auto published = ReadToken(path);
  if (published.ok() && *published == token) ::unlink(path.c_str());
}

}  // namespace trainyard
