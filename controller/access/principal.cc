#include "controller/access/principal.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace trainyard::controller {
namespace {

constexpr absl::string_view kRolePrefix = "ROLE_";
constexpr absl::string_view kWorkerPrefix = "trainyard://worker/";

constexpr size_t kMostNameBytes = 64;

bool StandsAlone(v1::Role role) { return role == v1::ROLE_WORKER || role == v1::ROLE_JOINER; }

}  // namespace

bool Principal::MayCall(const v1::Access& method) const {
  return std::any_of(roles.begin(), roles.end(), [&](v1::Role role) {
    if (StandsAlone(role) || StandsAlone(method.least())) return role == method.least();
    return role >= method.least();
  });
}

std::string NamespaceToList(const std::string& seen, const std::string& wanted) {
  if (wanted.empty() || wanted == seen) return seen;
  return seen.empty() ? wanted : kNoNamespace;
}

std::string Principal::account() const {
  return grant_id.empty() ? name : absl::StrCat(name, " (", grant_id, ")");
}

bool IsName(absl::string_view text) {
  return !text.empty() && text.size() <= kMostNameBytes &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
         });
}

std::string WantedName() {
  return absl::StrCat("1 to ", kMostNameBytes, " letters, digits and characters of '-_.@'");
}

void CheckName(absl::string_view field, absl::string_view text, Violations& violations) {
  if (IsName(text)) return;
  violations.Add(field, WantedName(), absl::StrCat(text.size(), " characters"));
}

std::string NameOf(v1::Role role) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::Role_Name(role), kRolePrefix));
}

v1::Role RoleOf(absl::string_view name) {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  // Upper-case names are those of the proto file, which no user needs to know.
  if (name == absl::AsciiStrToLower(name)) {
    v1::Role_Parse(absl::StrCat(kRolePrefix, absl::AsciiStrToUpper(name)), &role);
  }
  return role;
}

std::string ToUri(const WorkerName& name) {
  return absl::StrCat(kWorkerPrefix, name.worker_id, "#", name.grant_id);
}

bool ParseUri(absl::string_view uri, WorkerName& name) {
  if (!absl::ConsumePrefix(&uri, kWorkerPrefix)) return false;
  const std::pair<std::string, std::string> parts = absl::StrSplit(uri, absl::MaxSplits('#', 1));
  name = {parts.first, parts.second};
  return !name.worker_id.empty() && !name.grant_id.empty();
}

}  // namespace trainyard::controller
