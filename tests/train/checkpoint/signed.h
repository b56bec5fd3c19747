// What makes a manifest's text pass for one that was written so.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"

namespace trainyard::testing_checkpoint {

// A manifest whose checksum is right; `json`, of whichever order, is without one.
template <typename Json>
std::string Signed(const Json& json) {
  const std::string rest = json.dump().substr(1);
  Sha256 hash;
  hash.Update(rest);
  return absl::StrCat("{\"manifest_sha256\": \"", hash.HexDigest(), "\",\n", rest);
}

}  // namespace trainyard::testing_checkpoint
