#include "controller/jobs/directories.h"

#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace trainyard::controller {
namespace {

bool IsAbsolute(absl::string_view path) { return absl::StartsWith(path, "/"); }

std::string KeyOf(const std::string& path) {
  const std::string normal = std::filesystem::path(path).lexically_normal().string();
  std::string key;
  for (absl::string_view part : absl::StrSplit(normal, '/', absl::SkipEmpty())) {
    if (part != ".") absl::StrAppend(&key, "/", part);
  }
  return key;
}

// Makes of "/a/b" the "/a" that holds it. False: nothing holds it.
bool GoUp(std::string& key) {
  if (key.empty()) return false;
  key.resize(key.rfind('/'));
  return true;
}

}  // namespace

Directories::Uses& Directories::UsesLike(const std::string& directory) {
  return IsAbsolute(directory) ? absolute_ : relative_;
}

void Directories::Add(const std::string& directory, const std::string& job_id) {
  if (!directory.empty()) UsesLike(directory)[KeyOf(directory)] = {directory, job_id};
}

void Directories::Remove(const std::string& directory, const std::string& job_id) {
  if (directory.empty()) return;
  Uses& uses = UsesLike(directory);
  const auto use = uses.find(KeyOf(directory));
  if (use != uses.end() && use->second.job_id == job_id) uses.erase(use);
}

const Directories::Use* Directories::Find(const Uses& uses, const std::string& key,
                                          Relation relation) {
  std::string holder = key;
  do {
    if (const auto use = uses.find(holder); use != uses.end()) return &use->second;
  } while (GoUp(holder));
  if (relation == Relation::kHolds) return nullptr;
  const std::string inside = absl::StrCat(key, "/");
  const auto use = uses.lower_bound(inside);
  return use != uses.end() && absl::StartsWith(use->first, inside) ? &use->second : nullptr;
}

// An absolute path against absolute ones, and against relative ones below each root. `roots` are
// keys.
const Directories::Use* Directories::FindAbsolute(const std::string& key, const RootPaths& roots,
                                                  Relation relation) const {
  if (const Use* use = Find(absolute_, key, relation)) return use;
  if (relative_.empty()) return nullptr;
  std::string root = key;
  do {
    if (roots.count(root) == 0) continue;
    if (const Use* use = Find(relative_, key.substr(root.size()), relation)) return use;
  } while (GoUp(root));
  if (relation == Relation::kHolds) return nullptr;
  // The path holds a root, and so all that is relative to that.
  const std::string inside = absl::StrCat(key, "/");
  const auto held = roots.lower_bound(inside);
  const bool holds = held != roots.end() && absl::StartsWith(*held, inside);
  return holds ? &relative_.begin()->second : nullptr;
}

std::optional<Directories::Use> Directories::Find(const std::string& path, const RootPaths& roots,
                                                  Relation relation) const {
  if (path.empty() || (absolute_.empty() && relative_.empty())) return std::nullopt;
  const std::string key = KeyOf(path);
  RootPaths root_keys;
  for (const std::string& root : roots) root_keys.insert(KeyOf(root));
  const Use* use = nullptr;
  if (IsAbsolute(path)) {
    use = FindAbsolute(key, root_keys, relation);
  } else {
    use = Find(relative_, key, relation);
    for (auto root = root_keys.begin(); use == nullptr && root != root_keys.end(); ++root) {
      use = FindAbsolute(*root + key, root_keys, relation);
    }
  }
  return use == nullptr ? std::nullopt : std::optional(*use);
}

std::optional<Directories::Use> Directories::Overlapping(const std::string& path,
                                                         const RootPaths& roots) const {
  return Find(path, roots, Relation::kOverlaps);
}

std::optional<Directories::Use> Directories::Holding(const std::string& path,
                                                     const RootPaths& roots) const {
  return Find(path, roots, Relation::kHolds);
}

}  // namespace trainyard::controller
