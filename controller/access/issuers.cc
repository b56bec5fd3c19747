#include "controller/access/issuers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/violations.h"
#include "controller/jobs/job.h"
#include "security/secret_file.h"
#include "security/strict_json.h"
#include "train/config/fields.h"
#include "train/config/yaml.h"

namespace trainyard::controller {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kClocksMayDiffer = absl::Minutes(1);
constexpr size_t kMostSubjectBytes = 255;  // OpenID Connect Core 1.0, section 2.

// Returns a text or a list of texts. Empty: the node is something else.
std::vector<std::string> Texts(const YamlNode& node) {
  std::vector<std::string> texts;
  if (node.kind == YamlNode::Kind::kScalar) texts.push_back(node.text);
  for (const YamlNode& item : node.items) {
    if (item.kind != YamlNode::Kind::kScalar) return {};
    texts.push_back(item.text);
  }
  return texts;
}

// Reads a text. If the field is present, the text must be, too: "hosts:" is a mistake and does not
// mean any host.
void ReadText(Fields& fields, const YamlNode& node, const char* name, std::string& out) {
  fields.Field(name, out);
  const YamlNode* const found = node.Find(name);
  const bool empty = found != nullptr && (found->kind == YamlNode::Kind::kNull ||
                                          (found->kind == YamlNode::Kind::kScalar && out.empty()));
  if (empty) fields.Add(name, "a text, or the field left out", "an empty one");
}

ClaimsRule ReadRule(const YamlNode& node, const std::string& place, Violations& violations) {
  ClaimsRule rule;
  Fields fields(node, place, violations);
  fields.NotOfASpec();
  const YamlNode* const claims = fields.Node("claims");
  // A rule without claims would accept everybody whom the issuer knows.
  if (claims == nullptr || claims->fields.empty()) fields.Add("claims", "at least one claim");
  for (const auto& [claim, values] : claims == nullptr ? YamlNode().fields : claims->fields) {
    rule.claims[claim] = Texts(values);
    if (rule.claims[claim].empty()) {
      fields.Add("claims", absl::StrCat("a text or a list of texts for ", claim));
    }
  }
  std::string role;
  fields.Field("role", role);
  ReadText(fields, node, "namespace", rule.name_space);
  ReadText(fields, node, "hosts", rule.hosts);
  rule.role = RoleOf(role);
  if (rule.role == v1::ROLE_UNSPECIFIED || rule.role == v1::ROLE_WORKER) {
    fields.Add("role", kWantedRole);
  }
  const bool of_namespace = rule.role == v1::ROLE_VIEWER || rule.role == v1::ROLE_SUBMITTER;
  if (!rule.name_space.empty() && !of_namespace) {
    fields.Add("namespace", "none, since the role acts in all namespaces");
  } else if (!rule.name_space.empty()) {
    CheckName(fields.PathOf("namespace"), rule.name_space, violations);
  }
  if (rule.name_space.empty() && of_namespace) rule.name_space = kDefaultNamespace;
  if (!rule.hosts.empty() && rule.role != v1::ROLE_JOINER) {
    fields.Add("hosts", "none, since the role does not let workers join");
  }
  return rule;
}

Issuer ReadIssuer(const YamlNode& node, const std::string& name, Violations& violations) {
  Fields fields(node, name, violations);
  fields.NotOfASpec();
  CheckName(name, name, violations);
  Issuer issuer{.name = name, .policy = {}, .keys_file = "", .rules = {}};
  std::string longest;
  fields.Field("keys", issuer.keys_file);
  fields.Field("issuer", issuer.policy.issuer);
  fields.Field("audience", issuer.policy.audience);
  ReadText(fields, node, "longest", longest);
  issuer.policy.leeway = kClocksMayDiffer;
  if (const YamlNode* const algorithms = fields.Node("algorithms")) {
    issuer.policy.algorithms = Texts(*algorithms);
  }
  if (!longest.empty() && !absl::ParseDuration(longest, &issuer.policy.longest)) {
    fields.Add("longest", "a time, as 12h or 30m", absl::StrCat("'", VisibleUtf8(longest), "'"));
  }
  const absl::Status policy = CheckPolicy(issuer.policy);
  if (!policy.ok()) violations.Add({.field = name, .note = std::string(policy.message())});
  const bool control = std::any_of(issuer.keys_file.begin(), issuer.keys_file.end(),
                                   [](unsigned char c) { return absl::ascii_iscntrl(c); });
  if (issuer.keys_file.empty() || issuer.keys_file[0] != '/' || control) {
    fields.Add("keys",
               "the absolute path of a file with the issuer's JWKS, without control characters");
  }
  const YamlNode* const rules = fields.Node("rules");
  if (rules == nullptr || rules->items.empty()) fields.Add("rules", "at least one rule");
  for (size_t i = 0; rules != nullptr && i < rules->items.size(); ++i) {
    const std::string place = absl::StrCat(name, ".rules[", i, "]");
    issuer.rules.push_back(ReadRule(rules->items[i], place, violations));
  }
  return issuer;
}

bool IsOneOf(const Json& value, const std::vector<std::string>& wanted) {
  const std::string* const text = value.get_ptr<const std::string*>();
  return text != nullptr && std::find(wanted.begin(), wanted.end(), *text) != wanted.end();
}

bool Accepts(const ClaimsRule& rule, const Json& claims) {
  return std::all_of(rule.claims.begin(), rule.claims.end(), [&](const auto& wanted) {
    const auto found = claims.find(wanted.first);
    if (found == claims.end()) return false;
    if (!found->is_array()) return IsOneOf(*found, wanted.second);
    return std::any_of(found->begin(), found->end(),
                       [&](const Json& value) { return IsOneOf(value, wanted.second); });
  });
}

// Whether the text can stand in the audit log and in messages unchanged.
bool IsSubject(absl::string_view text) {
  return !text.empty() && text.size() <= kMostSubjectBytes &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isgraph(c); });
}

absl::StatusOr<Principal> PrincipalOf(const Issuer& issuer, const Json& claims) {
  const std::string* const subject = StringMember(claims, "sub");
  if (subject == nullptr || !IsSubject(*subject)) {
    return absl::UnauthenticatedError(
        absl::StrCat("the token is refused: its 'sub' is not a text of 1 to ", kMostSubjectBytes,
                     " visible characters of ASCII"));
  }
  const std::string name = absl::StrCat(issuer.name, ":", *subject);
  std::set<std::string> looked_at;
  for (const ClaimsRule& rule : issuer.rules) {
    if (Accepts(rule, claims)) {
      return Principal{.name = name,
                       .roles = {rule.role},
                       .name_space = rule.name_space,
                       .hosts = rule.hosts,
                       .expires = absl::UnixEpoch() + absl::Seconds(claims["exp"].get<double>())};
    }
    for (const auto& [claim, values] : rule.claims) looked_at.insert(claim);
  }
  return absl::PermissionDeniedError(absl::StrCat(
      name, " has no role here: no rule of the issuer ", issuer.name,
      " accepts the token by the claims that the rules look at: ", absl::StrJoin(looked_at, ", ")));
}

std::string TextOrError(const absl::StatusOr<std::string>& text) {
  return text.ok() ? *text : text.status().ToString();
}

}  // namespace

absl::StatusOr<std::vector<Issuer>> ParseIssuers(const std::string& yaml) {
  ASSIGN_OR_RETURN(const YamlNode file, ParseYaml(yaml));
  if (file.kind != YamlNode::Kind::kMapping) {
    return absl::InvalidArgumentError("wanted a mapping of names to issuers");
  }
  std::vector<Issuer> issuers;
  Violations violations;
  std::set<std::string> seen;
  for (const auto& [name, node] : file.fields) {
    issuers.push_back(ReadIssuer(node, name, violations));
    // With two entries for one issuer, it would be unclear whose rules decide about a token.
    if (!seen.insert(issuers.back().policy.issuer).second) {
      violations.Add(name + ".issuer", "an issuer that no entry above has");
    }
  }
  RETURN_IF_ERROR(violations.ToStatus());
  return issuers;
}

absl::StatusOr<std::unique_ptr<Issuers>> Issuers::Open(const std::string& path,
                                                       const Clock& clock) {
  std::unique_ptr<Issuers> issuers(new Issuers(path, clock));
  bool news = false;
  if (!path.empty()) RETURN_IF_ERROR(issuers->Read(news));
  return issuers;
}

std::optional<KeySet> Issuers::KeysSoFar(const Issuer& issuer) const {
  const MutexLock lock(mutex_);
  for (const auto& known : known_) {
    // Keys belong to the issuer's address, which stays the same if the entry gets another name.
    if (known->issuer.policy.issuer == issuer.policy.issuer) return known->keys;
  }
  return std::nullopt;
}

absl::Status Issuers::Read(bool& news) {
  const absl::StatusOr<std::string> text = ReadTrusted(path_);
  std::string seen = TextOrError(text);
  absl::StatusOr<std::vector<Issuer>> issuers = text.ok() ? ParseIssuers(*text) : text.status();
  std::vector<absl::StatusOr<std::string>> keys;
  for (const Issuer& issuer : issuers.ok() ? *issuers : std::vector<Issuer>()) {
    keys.push_back(ReadTrusted(issuer.keys_file));
    absl::StrAppend(&seen, "\n", TextOrError(keys.back()));
  }
  news = std::exchange(seen_, seen) != seen;
  if (!news) return absl::OkStatus();
  if (!issuers.ok()) {
    return absl::Status(issuers.status().code(),
                        absl::StrCat(path_, ": ", issuers.status().message()));
  }
  std::vector<std::shared_ptr<const Known>> all;
  absl::Status trouble;
  for (size_t i = 0; i < keys.size(); ++i) {
    Issuer& issuer = (*issuers)[i];
    Known known{.issuer = issuer, .keys = KeysSoFar(issuer)};
    absl::StatusOr<KeySet> parsed =
        keys[i].ok() ? KeySet::Parse(*keys[i]) : absl::StatusOr<KeySet>(keys[i].status());
    if (parsed.ok()) {
      known.keys = *std::move(parsed);
    } else {
      trouble.Update(absl::Status(parsed.status().code(),
                                  absl::StrCat("keys of ", issuer.name, ": ", issuer.keys_file,
                                               ": ", parsed.status().message())));
    }
    all.push_back(std::make_shared<const Known>(std::move(known)));
  }
  const MutexLock lock(mutex_);
  known_ = std::move(all);
  return trouble;
}

void Issuers::Refresh() {
  if (path_.empty()) return;
  bool news = false;
  const absl::Status status = Read(news);
  if (!status.ok()) return LogError("issuers_unreadable", {{"error", status.message()}});
  if (news) LogInfo("issuers_read", {{"file", path_}});
}

absl::StatusOr<Principal> Issuers::Authenticate(absl::string_view jwt) const {
  ASSIGN_OR_RETURN(const std::string claimed, ClaimedIssuer(jwt));
  std::shared_ptr<const Known> known;
  {
    const MutexLock lock(mutex_);
    for (const auto& one : known_) {
      if (one->issuer.policy.issuer == claimed) known = one;
    }
  }
  if (known == nullptr || !known->keys) {
    return absl::UnauthenticatedError(
        "the token is refused: this controller has no keys of the token's issuer");
  }
  ASSIGN_OR_RETURN(const Json claims,
                   VerifyJwt(jwt, *known->keys, known->issuer.policy, clock_.Now()));
  return PrincipalOf(known->issuer, claims);
}

}  // namespace trainyard::controller
