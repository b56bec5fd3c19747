#include "security/audit_entry.h"

#include "absl/strings/str_cat.h"
#include "common/sha256.h"

namespace trainyard {

std::string ChainedHash(absl::string_view previous_hash, const AuditEntry& entry) {
  Sha256 hash;
  const auto add = [&hash](absl::string_view field) {
    hash.Update(absl::StrCat(field.size(), ":"));
    hash.Update(field);
    hash.Update(",");
  };
  add(previous_hash);
  add(absl::StrCat(entry.number));
  add(absl::StrCat(absl::ToUnixMicros(entry.time)));
  for (const std::string* field :
       {&entry.caller, &entry.credential, &entry.peer, &entry.method, &entry.target,
        &entry.name_space, &entry.detail, &entry.outcome, &entry.message}) {
    add(*field);
  }
  return hash.HexDigest();
}

}  // namespace trainyard
