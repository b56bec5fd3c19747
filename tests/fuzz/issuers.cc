// The controller's file of issuers.

#include "controller/access/issuers.h"

#include "common/check.h"
#include "tests/fuzz/input.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = controller::ParseIssuers(std::string(fuzz::Input(data, size).Rest()));
  if (!read.ok()) {
    fuzz::CheckRefusal(read.status());
    return 0;
  }
  for (const controller::Issuer& issuer : *read) {
    CHECK(CheckPolicy(issuer.policy).ok() && controller::IsName(issuer.name)) << issuer.name;
    CHECK(issuer.keys_file[0] == '/' && issuer.keys_file.find('\0') == std::string::npos);
    CHECK(!issuer.rules.empty());
    for (const controller::ClaimsRule& rule : issuer.rules) {
      CHECK(!rule.claims.empty() && v1::Role_IsValid(rule.role));
      CHECK(rule.role != v1::ROLE_UNSPECIFIED && rule.role != v1::ROLE_WORKER);
      for (const auto& [claim, values] : rule.claims) CHECK(!values.empty()) << claim;
    }
  }
  return 0;
}

}  // namespace trainyard
