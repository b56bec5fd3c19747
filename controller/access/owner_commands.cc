#include "controller/access/owner_commands.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "controller/access/directories.h"
#include "controller/access/owner_tools.h"
#include "controller/access/principal.h"
#include "security/secret_file.h"

namespace trainyard::controller {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);

void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

}  // namespace

OwnerCommands::OwnerCommands(CLI::App& app, const std::string& state)
    : state_(state),
      init_(app.add_subcommand("init",
                               "Make an authority (once) and a certificate, so that other machines "
                               "can reach the controller")),
      token_(app.add_subcommand("token", "Make a token, even if all others are lost")),
      reader_(app.add_subcommand(
          "reader",
          "Make a certificate with which a program, such as Prometheus, reads the metrics pages")) {
  init_->add_option("--host", hosts_,
                    "Name or address by which clients and workers reach the controller; may be "
                    "repeated. Default: the name and the addresses of this machine");
  for (CLI::App* command : {token_, reader_}) {
    command->add_option("--name", name_, "Name of its owner")->required();
    command
        ->add_option("--days", days_,
                     "Days until it expires. Default: 90; a joiner's token expires after an hour")
        ->check(CLI::Range(1, 400));
  }
  token_->add_option("--role", role_, "viewer, submitter, operator, admin or joiner")
      ->capture_default_str();
  token_->add_option("--namespace", namespace_,
                     "Namespace of a viewer or submitter. Default: 'default'");
  token_->add_option("--uses", uses_, "How many workers may join with a joiner's token")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  reader_
      ->add_option("--directory", directory_,
                   "Directory for key.pem, certificate.pem and authority.pem")
      ->required();
}

std::optional<int> OwnerCommands::Run() const {
  absl::Status status;
  if (init_->parsed()) {
    status = Init();
  } else if (token_->parsed()) {
    status = Token();
  } else if (reader_->parsed()) {
    status = Reader();
  } else {
    return std::nullopt;
  }
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  if (status.ok() && std::fflush(stdout) != 0) return 1;
  return status.ok() ? 0 : 1;
}

absl::Status OwnerCommands::Init() const {
  const std::vector<std::string> hosts = hosts_.empty() ? HostsOfThisMachine() : hosts_;
  RETURN_IF_ERROR(MakeDirectories(state_));
  ASSIGN_OR_RETURN(const std::string fingerprint, InitAuthority(state_, hosts, RealClock().Now()));
  Print(absl::StrCat("authority ", fingerprint, "\nreached as ", absl::StrJoin(hosts, ", "),
                     "\nNext: 'trainyard-controller --state ", state_,
                     " token --name YOU > YOU.token', start the controller, and 'trainyard login "
                     "HOST:PORT < YOU.token'\n"));
  return absl::OkStatus();
}

absl::Status OwnerCommands::Token() const {
  v1::CreateTokenRequest request;
  request.set_name(name_);
  request.set_role(RoleOf(role_));
  request.set_namespace_(namespace_);
  // Without --days, the token is valid as long as one from `trainyard token create`.
  if (token_->count("--days") > 0) {
    request.mutable_valid()->set_seconds(absl::ToInt64Seconds(days_ * kDay));
  }
  if (request.role() == v1::ROLE_JOINER) request.mutable_join()->set_uses(uint32_t(uses_));
  ASSIGN_OR_RETURN(const Invitation invitation, MakeToken(state_, request, RealClock().Now()));
  Print(ToText(invitation));
  return absl::OkStatus();
}

absl::Status OwnerCommands::Reader() const {
  ASSIGN_OR_RETURN(const Identity reader,
                   MakeReader(state_, name_, days_ * kDay, RealClock().Now()));
  ASSIGN_OR_RETURN(const std::string authority,
                   ReadFile(AuthorityDirectory(state_) + "/authority.pem", 1 << 20));
  RETURN_IF_ERROR(MakeSecretDirectory(directory_));
  RETURN_IF_ERROR(WriteSecret(directory_ + "/key.pem", reader.key_pem));
  RETURN_IF_ERROR(WriteFileAtomic(directory_ + "/certificate.pem", reader.certificate_pem));
  return WriteFileAtomic(directory_ + "/authority.pem", authority);
}

}  // namespace trainyard::controller
