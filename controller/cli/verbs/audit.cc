// trainyard audit: who changed what. With --verify, whether the log is as it was written.

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "controller/cli/answer.h"
#include "controller/cli/client.h"
#include "controller/cli/errors.h"
#include "controller/cli/format.h"
#include "controller/cli/verbs/verbs.h"
#include "security/audit_entry.h"

namespace trainyard::cli {
namespace {

constexpr uint32_t kPage = 5'000;
constexpr size_t kHashDigits = 64;

// An entry that somebody has noted down: NUMBER:HASH. Number 0: none.
struct Anchor {
  uint64_t number = 0;
  std::string hash;
};

absl::Status ParseAnchor(const std::string& text, Anchor& anchor) {
  if (text.empty()) return absl::OkStatus();
  const size_t colon = std::min(text.find(':'), text.size() - 1);
  anchor.hash = text.substr(colon + 1);
  if (absl::SimpleAtoi(text.substr(0, colon), &anchor.number) && anchor.number > 0 &&
      anchor.hash.size() == kHashDigits) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("--since: wanted NUMBER:HASH as an earlier --verify said it, ",
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

// Follows the chain of hashes. What the first entry's hash covers beside the entry itself is not
// there where older entries are no longer kept: then an anchor vouches for it, or nothing does.
class Chain {
 public:
  explicit Chain(Anchor anchor) : anchor_(std::move(anchor)) {}

  // DATA_LOSS: the log has been changed, or is damaged.
  absl::Status Add(const AuditEntry& entry) {
    if (newest_ && entry.number != newest_->number + 1) {
      return Broken(absl::StrCat("entry ", newest_->number + 1, " is missing"));
    }
    const bool first = !newest_ && entry.number > 1;
    if (!first && entry.hash != ChainedHash(newest_ ? newest_->hash : "", entry)) {
      return Broken(absl::StrCat("entry ", entry.number,
                                 " is not what was written, or the one before is not"));
    }
    if (entry.number == anchor_.number && entry.hash != anchor_.hash) {
      return Broken(absl::StrCat("entry ", entry.number, " has the hash ", entry.hash, ", and had ",
                                 anchor_.hash));
    }
    if (!newest_) oldest_ = entry.number;
    newest_ = entry;
    return absl::OkStatus();
  }

  absl::Status CheckAnchor() const {
    const bool found = newest_ && oldest_ <= anchor_.number && anchor_.number <= newest_->number;
    if (anchor_.number == 0 || found) return absl::OkStatus();
    return Broken(absl::StrCat("entry ", anchor_.number, " is not there: the log has ", Range()));
  }

  std::string Range() const {
    return newest_ ? absl::StrCat("entries ", oldest_, " to ", newest_->number) : "no entries";
  }
  std::string Head() const {
    return newest_ ? absl::StrCat(newest_->number, ":", newest_->hash) : "";
  }
  uint64_t newest() const { return newest_ ? newest_->number : 0; }

 private:
  static absl::Status Broken(absl::string_view what) {
    return absl::DataLossError(absl::StrCat("the audit log cannot be relied on: ", what));
  }

  const Anchor anchor_;
  uint64_t oldest_ = 0;
  std::optional<AuditEntry> newest_;
};

absl::Status Verify(const Context& context, Client& client) {
  Anchor anchor;
  RETURN_IF_ERROR(ParseAnchor(context.arguments.Text("--since"), anchor));
  Chain chain(anchor);
  v1::ListAuditRequest request;
  request.set_page_size(kPage);
  request.set_after(anchor.number == 0 ? 0 : anchor.number - 1);
  for (;;) {
    ASSIGN_OR_RETURN(const v1::ListAuditResponse page,
                     client.Call(&v1::AccessService::Stub::ListAudit, request));
    if (page.entries().empty()) break;
    for (const v1::AuditEntry& entry : page.entries()) {
      RETURN_IF_ERROR(chain.Add(FromProto(entry)));
    }
    request.set_after(chain.newest());
  }
  RETURN_IF_ERROR(chain.CheckAnchor());
  context.output.Line(absl::StrCat("unbroken: ", chain.Range()));
  if (!chain.Head().empty()) {
    context.output.Line(absl::StrCat("newest:   ", chain.Head()));
    context.output.Note("keep that line elsewhere: --verify --since finds what was cut off since");
  }
  return absl::OkStatus();
}

absl::Status Run(const Context& context) {
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
  return {.name = "audit",
          .summary = "lists who changed what, and checks that nobody changed the list",
          .positionals = {},
          .options = {NumberOption("--after", "N", "the entries after number N; else the newest"),
                      NumberOption("--limit", "N", "how many", "100", {1, kPage}),
                      FlagOption("--verify", "", "follow the hashes of all entries instead"),
                      TextOption("--since", "NUMBER:HASH",
                                 "with --verify: from the entry that --verify showed then")},
          .offers = kController | kFormats | kQuiet,
          .examples = {"trainyard audit --limit 20", "trainyard audit --verify"},
          .run = Run};
}

}  // namespace trainyard::cli
