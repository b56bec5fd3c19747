// trainyard audit: lists who changed what. With --verify, checks that the log was not changed.

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/audit_chain.h"
#include "cli/client.h"
#include "cli/errors.h"
#include "cli/format.h"
#include "cli/verbs/verbs.h"
#include "common/status_macros.h"
#include "security/audit_entry.h"

namespace trainyard::cli {
namespace {

constexpr uint32_t kPage = 5'000;
constexpr size_t kHashDigits = 64;

absl::Status ParseAnchor(const std::string& text, AuditAnchor& anchor) {
  if (text.empty()) return absl::OkStatus();
  const size_t colon = std::min(text.find(':'), text.size() - 1);
  anchor.hash = text.substr(colon + 1);
  if (absl::SimpleAtoi(text.substr(0, colon), &anchor.number) && anchor.number > 0 &&
      anchor.hash.size() == kHashDigits) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("--since: wanted NUMBER:HASH as an earlier --verify printed it, ",
                                 "found '", text, "'"));
}

AuditEntry FromProto(const v1::AuditEntry& entry) {
  return {.number = entry.number(),
          .time = ToTime(entry.time()),
          .caller = entry.caller(),
          .credential = entry.credential(),
          .peer = entry.peer(),
          .method = entry.method(),
          .target = entry.target(),
          .name_space = entry.namespace_(),
          .detail = entry.detail(),
          .outcome = entry.outcome(),
          .message = entry.message(),
          .hash = entry.hash()};
}

absl::Status Verify(const Context& context, Client& client) {
  AuditAnchor anchor;
  RETURN_IF_ERROR(ParseAnchor(context.arguments.Text("--since"), anchor));
  AuditChain chain(anchor, kAuditEntriesKept);
  v1::ListAuditRequest request;
  request.set_page_size(kPage);
  request.set_after(chain.after());
  for (;;) {
    ASSIGN_OR_RETURN(const v1::ListAuditResponse page,
                     client.Call(&v1::AccessService::Stub::ListAudit, request));
    if (page.entries().empty()) break;
    for (const v1::AuditEntry& entry : page.entries()) {
      RETURN_IF_ERROR(chain.Add(FromProto(entry)));
    }
    request.set_after(chain.newest());
  }
  RETURN_IF_ERROR(chain.Finish());
  context.output.Line(absl::StrCat("unbroken: ", chain.Range()));
  if (!chain.Doubt().empty()) context.output.Line("but:      " + chain.Doubt());
  if (!chain.Head().empty()) {
    context.output.Line(absl::StrCat("newest:   ", chain.Head()));
    context.output.Note(
        "keep that line on another machine: with it, --verify --since finds entries that were cut "
        "off");
  }
  return absl::OkStatus();
}

absl::Status RunAudit(const Context& context) {
  Client client(context.ControllerAddress(), context.Places());
  if (context.arguments.Flag("--verify")) return Verify(context, client);
  if (context.arguments.Has("--since")) return UsageError("--since: goes with --verify");
  v1::ListAuditRequest request;
  request.set_page_size(uint32_t(context.arguments.Number("--limit")));
  if (context.arguments.Has("--after")) request.set_after(context.arguments.Number("--after"));
  ASSIGN_OR_RETURN(const v1::ListAuditResponse answer,
                   client.Call(&v1::AccessService::Stub::ListAudit, request));
  if (PrintedAsJson(answer, answer.entries(), context.output)) return absl::OkStatus();
  std::vector<std::vector<std::string>> rows;
  for (const v1::AuditEntry& entry : answer.entries()) {
    rows.push_back({absl::StrCat(entry.number()), FormatTimestamp(entry.time()), entry.caller(),
                    entry.peer(), entry.method(), entry.target(), entry.outcome(),
                    entry.message().empty() ? entry.detail() : entry.message()});
  }
  context.output.Table({{"NUMBER", true},
                        {"TIME"},
                        {"WHO"},
                        {"FROM"},
                        {"METHOD"},
                        {"TARGET"},
                        {"OUTCOME"},
                        {"DETAIL"}},
                       rows);
  return absl::OkStatus();
}

}  // namespace

Verb AuditVerb() {
  return {
      .name = "audit",
      .summary = "lists who changed what, and checks that nobody changed the list",
      .positionals = {},
      .options = {NumberOption("--after", "N",
                               "only entries after number N; default: the newest entries"),
                  NumberOption("--limit", "N", "how many", "100", {1, kPage}),
                  FlagOption("--verify", "", "follow the hashes of all entries instead"),
                  TextOption("--since", "NUMBER:HASH",
                             "with --verify: start at the entry that an earlier --verify printed")},
      .offers = kController | kFormats | kQuiet,
      .examples = {"trainyard audit --limit 20", "trainyard audit --verify"},
      .run = RunAudit};
}

}  // namespace trainyard::cli
