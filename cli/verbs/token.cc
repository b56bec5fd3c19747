// trainyard token create, list and revoke: decides who gets in.

#include <cstdlib>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/answer.h"
#include "cli/client.h"
#include "cli/errors.h"
#include "cli/format.h"
#include "cli/request_id.h"
#include "cli/verbs/verbs.h"
#include "common/status_macros.h"
#include "security/credentials.h"

namespace trainyard::cli {
namespace {

absl::StatusOr<v1::Role> ParseRole(const std::string& name) {
  v1::Role role;
  if (v1::Role_Parse(absl::StrCat("ROLE_", absl::AsciiStrToUpper(name)), &role)) return role;
  return UsageError(absl::StrCat(
      "--role: wanted viewer, submitter, operator, admin or joiner, found '", name, "'"));
}

// Parses 30m, 12h or 90d.
absl::StatusOr<int64_t> ParseSeconds(const std::string& text) {
  int64_t days = 0;
  absl::Duration time;
  constexpr int64_t kDay = 24 * 3600;
  constexpr int64_t kMostDays = std::numeric_limits<int64_t>::max() / kDay;
  if (text.ends_with('d') && absl::SimpleAtoi(text.substr(0, text.size() - 1), &days) &&
      std::abs(days) <= kMostDays) {
    return days * kDay;
  }
  if (absl::ParseDuration(text, &time)) return absl::ToInt64Seconds(time);
  return UsageError(absl::StrCat("--valid: wanted a time as 30m, 12h or 90d, found '", text, "'"));
}

absl::StatusOr<v1::CreateTokenRequest> TokenRequest(const Arguments& arguments) {
  v1::CreateTokenRequest request;
  request.set_name(arguments.Text("NAME"));
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(const v1::Role role, ParseRole(arguments.Text("--role")));
  request.set_role(role);
  request.set_namespace_(arguments.Text("--namespace"));
  if (arguments.Has("--valid")) {
    ASSIGN_OR_RETURN(const int64_t seconds, ParseSeconds(arguments.Text("--valid")));
    request.mutable_valid()->set_seconds(seconds);
  }
  if (arguments.Has("--uses") || arguments.Has("--hosts")) {
    request.mutable_join()->set_uses(arguments.Has("--uses") ? uint32_t(arguments.Number("--uses"))
                                                             : 1);
    request.mutable_join()->set_hosts(arguments.Text("--hosts"));
  }
  return request;
}

absl::Status Create(const Context& context) {
  ASSIGN_OR_RETURN(const v1::CreateTokenRequest request, TokenRequest(context.arguments));
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(const v1::CreateTokenResponse made,
                   client.Call(&v1::AccessService::Stub::CreateToken, request));
  if (PrintedAsJson(made, context.output)) return absl::OkStatus();
  context.output.Text(ToText({.token = made.token(), .fingerprint = made.authority_fingerprint()}));
  context.output.Note("this is shown only once; hand all of it over in secret");
  return absl::OkStatus();
}

absl::Status List(const Context& context) {
  Client client(context.ControllerAddress(), context.Places());
  ASSIGN_OR_RETURN(const v1::ListGrantsResponse all,
                   client.Call(&v1::AccessService::Stub::ListGrants, v1::ListGrantsRequest()));
  if (PrintedAsJson(all, all.grants(), context.output)) return absl::OkStatus();
  std::vector<std::vector<std::string>> rows;
  for (const v1::Grant& grant : all.grants()) {
    std::string of = grant.has_join() ? absl::StrCat(grant.join().uses(), " uses left")
                                      : absl::StrCat(grant.namespace_(), grant.worker_id());
    rows.push_back({grant.id(), grant.name(), RoleName(grant.role()), std::move(of),
                    FormatTimestamp(grant.expire_time()), grant.created_by()});
  }
  context.output.Table({{"ID"}, {"NAME"}, {"ROLE"}, {"OF"}, {"EXPIRES"}, {"MADE BY"}}, rows);
  return absl::OkStatus();
}

absl::Status Revoke(const Context& context) {
  v1::RevokeGrantRequest request;
  request.set_id(context.arguments.Text("ID"));
  Client client(context.ControllerAddress(), context.Places());
  absl::StatusOr<v1::RevokeGrantResponse> answer =
      client.Call(&v1::AccessService::Stub::RevokeGrant, request);
  if (absl::IsNotFound(answer.status()) && client.repeated()) {
    context.output.Note(absl::StrCat("there is no grant ", request.id(),
                                     " any more: an earlier attempt of this call has revoked it, "
                                     "unless there was none"));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const v1::RevokeGrantResponse revoked, std::move(answer));
  if (PrintedAsJson(revoked.grant(), context.output)) return absl::OkStatus();
  context.output.Line(
      absl::StrCat("revoked ", revoked.grant().id(), " of ", revoked.grant().name()));
  return absl::OkStatus();
}

}  // namespace

Verb TokenCreateVerb() {
  return {.name = "token create",
          .summary = "makes a token for a person, or one with which workers join",
          .positionals = {{"NAME", "whose it is"}},
          .options = {TextOption("--role", "ROLE", "viewer, submitter, operator, admin or joiner",
                                 "submitter"),
                      TextOption("--namespace", "NAME",
                                 "namespace of a viewer or submitter; default: 'default'"),
                      TextOption("--valid", "TIME", "30m, 12h, 90d; else 90d, of joiners 1h"),
                      NumberOption("--uses", "N", "how many workers may join; default: 1", "", {1}),
                      TextOption("--hosts", "PATTERN",
                                 "only for workers on hosts with such names: 'gpu-*'")},
          .offers = kController | kFormats | kQuiet,
          .examples = {"trainyard token create alice > alice.token",
                       "trainyard token create rack-7 --role joiner --uses 16 --hosts 'gpu-7-*'"},
          .run = Create};
}

Verb TokenListVerb() {
  return {.name = "token list",
          .summary = "lists tokens, and the workers that have joined",
          .positionals = {},
          .options = {},
          .offers = kController | kFormats | kQuiet,
          .examples = {"trainyard token list"},
          .run = List};
}

Verb TokenRevokeVerb() {
  return {.name = "token revoke",
          .summary = "ends a token, or a worker's membership, at once",
          .positionals = {{"ID", "as 'trainyard token list' shows it"}},
          .options = {},
          .offers = kController | kFormats | kQuiet,
          .examples = {"trainyard token revoke 4fJk02Lq"},
          .run = Revoke};
}

}  // namespace trainyard::cli
