#include "controller/access/namespaces.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/roots.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/violations.h"
#include "security/secret_file.h"
#include "train/config/yaml.h"

namespace trainyard::controller {
namespace {

void ReadRoots(const YamlNode& node, const std::string& field, NamespaceLimits& limits,
               Violations& violations) {
  for (const YamlNode& root : node.items) {
    const bool control = std::any_of(root.text.begin(), root.text.end(),
                                     [](char c) { return absl::ascii_iscntrl(c); });
    if (root.text.empty() || root.text[0] != '/' || control) {
      violations.Add(field, "an absolute path without control characters",
                     absl::StrCat("'", VisibleUtf8(root.text), "'"));
    }
    limits.roots.push_back(root.text);
  }
  // An empty list would mean that paths may lie anywhere.
  if (node.items.empty()) violations.Add(field, "a list of absolute paths");
}

NamespaceLimits ReadLimits(const YamlNode& node, const std::string& name, Violations& violations) {
  NamespaceLimits limits;
  if (node.kind != YamlNode::Kind::kMapping) violations.Add(name, "{devices: N, roots: []}");
  for (const auto& [key, value] : node.fields) {
    const std::string field = absl::StrCat(name, ".", key);
    uint32_t devices = 0;
    if (key == "roots") {
      ReadRoots(value, field, limits, violations);
    } else if (key != "devices") {
      violations.Add(field, "devices or roots");
    } else if (absl::SimpleAtoi(value.text, &devices)) {
      limits.devices = devices;
    } else {
      violations.Add(field, "a number from 0 on", absl::StrCat("'", value.text, "'"));
    }
  }
  return limits;
}

}  // namespace

absl::StatusOr<std::map<std::string, NamespaceLimits>> ParseNamespaces(const std::string& yaml) {
  ASSIGN_OR_RETURN(const YamlNode file, ParseYaml(yaml));
  if (file.kind != YamlNode::Kind::kMapping) {
    return absl::InvalidArgumentError("wanted a mapping of namespaces to their limits");
  }
  std::map<std::string, NamespaceLimits> namespaces;
  Violations violations;
  for (const auto& [name, node] : file.fields) {
    CheckName("namespaces", name, violations);
    namespaces.emplace(name, ReadLimits(node, name, violations));
  }
  RETURN_IF_ERROR(violations.ToStatus());
  return namespaces;
}

absl::StatusOr<std::unique_ptr<Namespaces>> Namespaces::Open(const std::string& path) {
  std::unique_ptr<Namespaces> namespaces(new Namespaces(path));
  if (!path.empty()) RETURN_IF_ERROR(namespaces->Read());
  return namespaces;
}

absl::Status Namespaces::Read() {
  ASSIGN_OR_RETURN(std::string text, ReadTrusted(path_));
  if (text == seen_) return absl::OkStatus();
  seen_ = text;
  auto parsed = ParseNamespaces(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", parsed.status().message()));
  }
  const MutexLock lock(mutex_);
  limits_ = *std::move(parsed);
  return absl::OkStatus();
}

bool Namespaces::Refresh() {
  if (path_.empty()) return false;
  const std::string before = seen_;
  const absl::Status status = Read();
  if (!status.ok()) {
    const std::string complaint(status.message());
    if (std::exchange(complaint_, complaint) != complaint) {
      LogError("namespaces_unreadable", {{"error", complaint}});
    }
    return false;
  }
  complaint_.clear();
  if (seen_ == before) return false;
  LogInfo("namespaces_read", {{"file", path_}});
  return true;
}

absl::StatusOr<NamespaceLimits> Namespaces::Find(const std::string& name) const {
  if (path_.empty()) return NamespaceLimits();
  const MutexLock lock(mutex_);
  const auto found = limits_.find(name);
  if (found != limits_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("there is no namespace '", name, "'"));
}

std::string Namespaces::Names() const {
  const MutexLock lock(mutex_);
  return absl::StrJoin(limits_, ", ",
                       [](std::string* out, const auto& entry) { out->append(entry.first); });
}

std::optional<uint32_t> Namespaces::DeviceQuota(const std::string& name) const {
  const auto limits = Find(name);
  return limits.ok() ? limits->devices : 0;
}

absl::StatusOr<std::shared_ptr<const Spec>> Namespaces::Admit(const Spec& spec,
                                                              const std::string& name,
                                                              const Principal& submitter) const {
  Violations violations;
  CheckName("namespace", name, violations);
  RETURN_IF_ERROR(violations.ToStatus());
  const absl::StatusOr<NamespaceLimits> limits = Find(name);
  if (!limits.ok()) {
    // Whoever is bound to a namespace need not know which others exist.
    const std::string others =
        submitter.name_space.empty() ? absl::StrCat("; there are ", Names()) : "";
    violations.Add({.field = "namespace", .note = absl::StrCat(limits.status().message(), others)});
    return violations.ToStatus();
  }
  if (limits->devices && spec.facts.ranks > *limits->devices) {
    violations.Add({.field = "devices",
                    .wanted = absl::StrCat("at most ", *limits->devices),
                    .found = absl::StrCat(spec.facts.ranks),
                    .note = absl::StrCat("the namespace ", name, " may hold no more")});
  }
  for (const SpecPath& named : spec.facts.paths) {
    const auto admits = [&](const std::string& root) { return MayLieBelow(named.path, root); };
    if (limits->roots.empty() || std::any_of(limits->roots.begin(), limits->roots.end(), admits)) {
      continue;
    }
    violations.Add(named.field, absl::StrCat("a path below a root of the namespace ", name),
                   absl::StrCat("'", named.path, "'"),
                   absl::StrCat("a path below ", absl::StrJoin(limits->roots, " or "),
                                ", or a relative path"));
  }
  RETURN_IF_ERROR(violations.ToStatus());
  auto admitted = std::make_shared<Spec>(spec);
  admitted->facts.name_space = name;
  admitted->facts.submitter = submitter.name;
  admitted->facts.roots = limits->roots;
  return admitted;
}

}  // namespace trainyard::controller
