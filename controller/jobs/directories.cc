#include "controller/jobs/directories.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/roots.h"

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

// Replaces "/a/b" by its parent "/a". Returns false if there is no parent.
bool GoUp(std::string& key) {
  if (key.empty()) return false;
  key.resize(key.rfind('/'));
  return true;
}

bool LiesBelow(const std::string& key, const std::string& root) {
  return absl::StartsWith(key, root) && (key.size() == root.size() || key[root.size()] == '/');
}

// Whether a job whose namespace has the roots `own` may open the path.
bool StaysBelow(const std::string& path, const std::vector<std::string>& own) {
  const std::string key = KeyOf(path);
  if (!IsAbsolute(path)) return !LiesBelow(key, "/..");
  return own.empty() || std::any_of(own.begin(), own.end(), [&](const std::string& root) {
           return LiesBelow(key, KeyOf(root));
         });
}

// Returns the keys of the roots below which workers accept a relative path of a job whose namespace
// has the roots `own`. If no worker has any of these, returns all of `own`, because a worker that
// has them may register later.
RootPaths RootsNow(const std::vector<std::string>& own, const RootPaths& workers) {
  const std::vector<std::string> all(workers.begin(), workers.end());
  std::vector<std::string> now = own.empty() ? all : CommonRoots(own, all);
  if (now.empty()) now = own;
  RootPaths keys;
  for (const std::string& root : now) keys.insert(KeyOf(root));
  return keys;
}

}  // namespace

Directories::Uses& Directories::UsesLike(const JobFacts& facts) {
  return IsAbsolute(facts.checkpoint_directory) ? absolute_ : relative_[facts.roots];
}

void Directories::Add(const JobFacts& facts, const std::string& job_id) {
  const std::string& directory = facts.checkpoint_directory;
  if (directory.empty() || !StaysBelow(directory, facts.roots)) return;
  UsesLike(facts)[KeyOf(directory)] = {directory, job_id, facts.name_space};
}

void Directories::Remove(const JobFacts& facts, const std::string& job_id) {
  if (facts.checkpoint_directory.empty()) return;
  Uses& uses = UsesLike(facts);
  const auto use = uses.find(KeyOf(facts.checkpoint_directory));
  if (use != uses.end() && use->second.job_id == job_id) uses.erase(use);
  std::erase_if(relative_, [](const auto& group) { return group.second.empty(); });
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

// Compares an absolute path with the relative paths below each root of the group.
const Directories::Use* Directories::FindBelow(const Group& group, const std::string& key,
                                               Relation relation) {
  std::string root = key;
  do {
    if (group.roots.count(root) == 0) continue;
    if (const Use* use = Find(*group.uses, key.substr(root.size()), relation)) return use;
  } while (GoUp(root));
  if (relation == Relation::kHolds) return nullptr;
  // A path that contains a root contains all relative paths below this root.
  const std::string inside = absl::StrCat(key, "/");
  const auto held = group.roots.lower_bound(inside);
  const bool holds = held != group.roots.end() && absl::StartsWith(*held, inside);
  return holds ? &group.uses->begin()->second : nullptr;
}

const Directories::Use* Directories::FindAbsolute(const std::string& key,
                                                  const std::vector<Group>& groups,
                                                  Relation relation) const {
  const Use* use = Find(absolute_, key, relation);
  for (auto group = groups.begin(); use == nullptr && group != groups.end(); ++group) {
    use = FindBelow(*group, key, relation);
  }
  return use;
}

std::optional<Directories::Use> Directories::Find(const std::string& path,
                                                  const std::vector<std::string>& own,
                                                  const RootPaths& workers,
                                                  Relation relation) const {
  if (path.empty() || !StaysBelow(path, own)) return std::nullopt;
  const std::string key = KeyOf(path);
  std::vector<Group> groups;
  for (const auto& [roots, uses] : relative_) {
    groups.push_back({&roots, RootsNow(roots, workers), &uses});
  }
  const Use* use = nullptr;
  if (IsAbsolute(path)) {
    use = FindAbsolute(key, groups, relation);
  } else {
    const RootPaths roots = RootsNow(own, workers);
    // Two relative paths with the same spelling may be the same if their roots are the same or
    // unknown.
    for (auto group = groups.begin(); use == nullptr && group != groups.end(); ++group) {
      const bool alike = *group->own == own || group->roots.empty() || roots.empty();
      if (alike) use = Find(*group->uses, key, relation);
    }
    for (auto root = roots.begin(); use == nullptr && root != roots.end(); ++root) {
      use = FindAbsolute(*root + key, groups, relation);
    }
  }
  return use == nullptr ? std::nullopt : std::optional(*use);
}

std::optional<Directories::Use> Directories::Overlapping(const std::string& path,
                                                         const std::vector<std::string>& own,
                                                         const RootPaths& workers) const {
  return Find(path, own, workers, Relation::kOverlaps);
}

std::optional<Directories::Use> Directories::Holding(const std::string& path,
                                                     const std::vector<std::string>& own,
                                                     const RootPaths& workers) const {
  return Find(path, own, workers, Relation::kHolds);
}

}  // namespace trainyard::controller
