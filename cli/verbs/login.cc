// trainyard login, logout and whoami: which caller the controller takes this machine's user for.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/answer.h"
#include "cli/client.h"
#include "cli/errors.h"
#include "cli/format.h"
#include "cli/verbs/verbs.h"
#include "common/clock.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "security/channel.h"
#include "security/controller_proof.h"
#include "security/secret_file.h"

namespace trainyard::cli {
namespace {

constexpr absl::Duration kLoginPatience = absl::Seconds(20);
// The command before may have started the controller, or the forwarding of its port.
constexpr absl::Duration kPatienceForAStart = absl::Seconds(10);

// "alice: submitter of research, until 2027-02-21 18:40"
std::string Show(const v1::WhoAmIResponse& who) {
  std::string text = absl::StrCat(who.name(), ":");
  for (const int role : who.roles()) {
    absl::StrAppend(&text, " ", RoleName(v1::Role(role)));
  }
  if (!who.namespace_().empty()) absl::StrAppend(&text, " of ", who.namespace_());
  if (who.has_expire_time()) absl::StrAppend(&text, ", until ", FormatTimestamp(who.expire_time()));
  return text;
}

absl::StatusOr<Invitation> ReadInvitation(const Context& context) {
  const std::string path = context.arguments.Text("--token-file");
  if (!path.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadSecret(path, context.surroundings.places.readers));
    return ParseInvitation(text);
  }
  return ParseInvitation(std::string(std::istreambuf_iterator<char>(std::cin), {}));
}

absl::StatusOr<std::string> FetchOnceItAnswers(Output& output, const Address& controller,
                                               const std::string& fingerprint) {
  const absl::Duration deadline = RealClock().Monotonic() + kPatienceForAStart;
  for (bool told = false;; told = true) {
    absl::StatusOr<std::string> authority = FetchAuthority(controller, fingerprint, kLoginPatience);
    if (!absl::IsUnavailable(authority.status()) || RealClock().Monotonic() >= deadline) {
      return authority;
    }
    const absl::string_view why = authority.status().message();
    if (!told) output.Note(absl::StrCat(why, "; trying again for a while"));
    absl::SleepFor(absl::Milliseconds(100));
  }
}

absl::StatusOr<std::string> Authorities(const Context& context, const Address& controller,
                                        const Invitation& invitation) {
  const std::string path = context.arguments.Text("--authority");
  if (!path.empty()) return ReadFile(path, 1 << 20);
  if (!invitation.fingerprint.empty()) {
    return FetchOnceItAnswers(context.output, controller, invitation.fingerprint);
  }
  if (controller.loopback()) return "";
  return UsageError(
      "wanted the fingerprint that 'trainyard token create' printed after the token, or "
      "--authority FILE: without either, nothing proves the controller");
}

// Called before the login is stored, so that only a working one is.
absl::StatusOr<v1::WhoAmIResponse> Ask(const Address& controller, const Credential& credential) {
  const auto stub =
      v1::AccessService::NewStub(Dial(controller.ToString(), credential, grpc::ChannelArguments()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kLoginPatience));
  v1::WhoAmIResponse who;
  const absl::Status said = FromGrpc(stub->WhoAmI(&context, v1::WhoAmIRequest(), &who));
  if (absl::IsPermissionDenied(said)) {
    return absl::PermissionDeniedError(absl::StrCat(
        said.message(), "; a token of the role joiner is for 'trainyard-worker --join FILE'"));
  }
  RETURN_IF_ERROR(said);
  return who;
}

absl::StatusOr<std::string> ConfigOf(const Context& context) {
  const std::string& directory = context.surroundings.places.config_directory;
  if (!directory.empty()) return directory;
  return UsageError("there is no place to store a login: HOME is not set");
}

absl::Status Login(const Context& context) {
  const auto controller = ParseAddress(context.arguments.Text("CONTROLLER"));
  if (!controller.ok()) return UsageError(controller.status().message());
  ASSIGN_OR_RETURN(const std::string config, ConfigOf(context));
  ASSIGN_OR_RETURN(const Invitation invitation, ReadInvitation(context));
  Credential credential{.token = invitation.token, .authorities = {}, .identity = {}};
  ASSIGN_OR_RETURN(credential.authorities, Authorities(context, *controller, invitation));
  ASSIGN_OR_RETURN(const v1::WhoAmIResponse who, Ask(*controller, credential));
  RETURN_IF_ERROR(SaveLogin(config, *controller, credential));
  context.output.Line(Show(who));
  return absl::OkStatus();
}

absl::Status Logout(const Context& context) {
  const auto controller = ParseAddress(context.arguments.Text("CONTROLLER"));
  if (!controller.ok()) return UsageError(controller.status().message());
  ASSIGN_OR_RETURN(const std::string config, ConfigOf(context));
  return RemoveLogin(config, *controller);
}

absl::Status WhoAmI(const Context& context) {
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(const v1::WhoAmIResponse who,
                   client.Call(&v1::AccessService::Stub::WhoAmI, v1::WhoAmIRequest()));
  if (!PrintedAsJson(who, context.output)) context.output.Line(Show(who));
  return absl::OkStatus();
}

}  // namespace

Verb LoginVerb() {
  return {
      .name = "login",
      .summary = "stores a token for a controller, and the certificate that proves the controller",
      .positionals = {{"CONTROLLER", "its host:port"}},
      .options = {TextOption(
                      "--token-file", "FILE",
                      "file with the output of 'trainyard token create'; default: standard input"),
                  TextOption("--authority", "FILE",
                             "certificate of the controller's authority, if the token comes "
                             "without a fingerprint")},
      .offers = kQuiet,
      .examples = {"trainyard login trainer.example.org:7070 < alice.token"},
      .run = Login};
}

Verb LogoutVerb() {
  return {.name = "logout",
          .summary = "removes what login stored; the token itself stays valid until it is revoked",
          .positionals = {{"CONTROLLER", "its host:port"}},
          .options = {},
          .offers = kNothing,
          .examples = {"trainyard logout trainer.example.org:7070"},
          .run = Logout};
}

Verb WhoAmIVerb() {
  return {.name = "whoami",
          .summary = "shows whom the controller takes you for",
          .positionals = {},
          .options = {},
          .offers = kController | kFormats,
          .examples = {"trainyard whoami"},
          .run = WhoAmI};
}

}  // namespace trainyard::cli
