#include "security/jwt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "security/strict_json.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxTokenBytes = 16 << 10;
constexpr absl::Duration kMaxLeeway = absl::Minutes(10);

// A policy may name other algorithms by mistake, such as "none".
bool IsKnown(absl::string_view algorithm) {
  return algorithm == "RS256" || algorithm == "ES256" || algorithm == "EdDSA";
}

bool Contains(const std::vector<std::string>& list, const std::string& wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

absl::Status Refuse(absl::string_view why) {
  return absl::UnauthenticatedError(absl::StrCat("the token is refused: ", why));
}

// An error in a token's form is the sender's fault, not the caller's.
template <typename T>
absl::StatusOr<T> OrRefuse(absl::StatusOr<T> parsed) {
  if (!parsed.ok()) return Refuse(parsed.status().message());
  return parsed;
}

absl::StatusOr<KeySet::Claimed> ReadHeader(absl::string_view text) {
  ASSIGN_OR_RETURN(const std::string decoded, OrRefuse(DecodeBase64Url(text)));
  ASSIGN_OR_RETURN(const Json header, OrRefuse(ParseStrictJson(decoded, "its header")));
  // RFC 7515, 4.1.11: a reader that does not understand a member named by crit must refuse. This
  // reader understands none.
  if (header.contains("crit")) return Refuse("its header has the member 'crit'");
  const std::string* const algorithm = StringMember(header, "alg");
  if (algorithm == nullptr) return Refuse("its header has no 'alg'");
  KeySet::Claimed claimed{*algorithm, absl::nullopt};
  if (header.contains("kid")) {
    const std::string* const kid = StringMember(header, "kid");
    if (kid == nullptr) return Refuse("its 'kid' is not a string");
    claimed.kid = *kid;
  }
  return claimed;
}

// Returns the time in a claim, or `otherwise` if the claim is missing.
absl::StatusOr<absl::Time> TimeClaim(const Json& claims, const char* name, absl::Time otherwise) {
  const auto claim = claims.find(name);
  if (claim == claims.end()) return otherwise;
  if (!claim->is_number()) return Refuse(absl::StrCat("its '", name, "' is not a number"));
  return absl::UnixEpoch() + absl::Seconds(claim->get<double>());
}

absl::Status CheckTimes(const Json& claims, const JwtPolicy& policy, absl::Time now) {
  if (!claims.contains("exp")) return Refuse("it has no 'exp'");
  ASSIGN_OR_RETURN(const absl::Time expires, TimeClaim(claims, "exp", absl::InfinitePast()));
  ASSIGN_OR_RETURN(const absl::Time begins, TimeClaim(claims, "nbf", absl::InfinitePast()));
  ASSIGN_OR_RETURN(const absl::Time issued, TimeClaim(claims, "iat", absl::InfinitePast()));
  if (now >= expires + policy.leeway) {
    return Refuse(absl::StrCat("it expired at ", absl::FormatTime(expires, absl::UTCTimeZone())));
  }
  if (std::max(begins, issued) > now + policy.leeway) {
    return Refuse(absl::StrCat(
        "it is valid from ", absl::FormatTime(std::max(begins, issued), absl::UTCTimeZone()),
        " only; this machine's clock says ", absl::FormatTime(now, absl::UTCTimeZone())));
  }
  const absl::Time from = issued == absl::InfinitePast() ? now : issued;
  if (expires - from > policy.longest) {
    return Refuse(absl::StrCat("it is good for longer than ", absl::FormatDuration(policy.longest),
                               ", the most that this controller accepts"));
  }
  return absl::OkStatus();
}

absl::Status CheckAudience(const Json& claims, const std::string& wanted) {
  const auto audience = claims.find("aud");
  if (audience == claims.end()) return Refuse("it has no 'aud'");
  bool found = false;
  for (const Json& entry : audience->is_array() ? *audience : Json::array({*audience})) {
    const std::string* const name = entry.get_ptr<const std::string*>();
    if (name == nullptr) return Refuse("its 'aud' is neither a string nor an array of strings");
    found = found || *name == wanted;
  }
  return found ? absl::OkStatus() : Refuse(absl::StrCat("it is not for '", wanted, "'"));
}

// Splits a token into its three parts.
absl::StatusOr<std::vector<absl::string_view>> Split(absl::string_view text) {
  if (text.size() > kMaxTokenBytes) {
    return Refuse(absl::StrCat("it has ", text.size(), " bytes; at most ", kMaxTokenBytes));
  }
  std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  if (parts.size() != 3) return Refuse("it does not consist of three parts");
  return parts;
}

}  // namespace

absl::Status CheckPolicy(const JwtPolicy& policy) {
  if (policy.issuer.empty() || policy.audience.empty() || policy.algorithms.empty()) {
    return absl::InvalidArgumentError(
        "wanted a policy with an issuer, an audience and algorithms for tokens");
  }
  if (!std::all_of(policy.algorithms.begin(), policy.algorithms.end(), IsKnown)) {
    return absl::InvalidArgumentError(
        "wanted a policy whose algorithms are among RS256, ES256 and EdDSA");
  }
  if (policy.leeway < absl::ZeroDuration() || policy.leeway > kMaxLeeway) {
    return absl::InvalidArgumentError(absl::StrCat("wanted a leeway from 0 to 10 minutes, found ",
                                                   absl::FormatDuration(policy.leeway)));
  }
  if (policy.longest <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("wanted a longest time for tokens of more than 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ClaimedIssuer(absl::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<absl::string_view> parts, Split(text));
  ASSIGN_OR_RETURN(const std::string payload, OrRefuse(DecodeBase64Url(parts[1])));
  ASSIGN_OR_RETURN(const Json claims, OrRefuse(ParseStrictJson(payload, "its payload")));
  const std::string* const issuer = StringMember(claims, "iss");
  if (issuer == nullptr) return Refuse("it has no 'iss'");
  return *issuer;
}

absl::StatusOr<std::string> VerifySignature(absl::string_view text, const KeySet& keys,
                                            const std::vector<std::string>& algorithms) {
  ASSIGN_OR_RETURN(const std::vector<absl::string_view> parts, Split(text));
  ASSIGN_OR_RETURN(const KeySet::Claimed claimed, ReadHeader(parts[0]));
  if (!IsKnown(claimed.algorithm) || !Contains(algorithms, claimed.algorithm)) {
    return Refuse("its algorithm is not one of those that the policy allows");
  }
  ASSIGN_OR_RETURN(std::string payload, OrRefuse(DecodeBase64Url(parts[1])));
  ASSIGN_OR_RETURN(const std::string signature, OrRefuse(DecodeBase64Url(parts[2])));
  const absl::string_view signed_text = text.substr(0, parts[0].size() + 1 + parts[1].size());
  RETURN_IF_ERROR(keys.Verify(claimed, signed_text, signature));
  return payload;
}

absl::StatusOr<Json> VerifyJwt(absl::string_view text, const KeySet& keys, const JwtPolicy& policy,
                               absl::Time now) {
  RETURN_IF_ERROR(CheckPolicy(policy));
  ASSIGN_OR_RETURN(const std::string payload, VerifySignature(text, keys, policy.algorithms));
  ASSIGN_OR_RETURN(Json claims, OrRefuse(ParseStrictJson(payload, "its payload")));
  const std::string* const issuer = StringMember(claims, "iss");
  if (issuer == nullptr || *issuer != policy.issuer) {
    return Refuse(absl::StrCat("it is not by '", policy.issuer, "'"));
  }
  RETURN_IF_ERROR(CheckAudience(claims, policy.audience));
  RETURN_IF_ERROR(CheckTimes(claims, policy, now));
  return claims;
}

}  // namespace trainyard
