// Which live job uses which checkpoint directory, by spelling alone: the controller never looks at
// the file systems of the workers. Two spellings overlap where, below any of the workers' roots,
// one may be the other or lie inside it. What symbolic links make of a path, the rank finds out
// that claims its directory (train/checkpoint/claim.cc).

#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::controller {

// The directories, in any spelling, below which workers admit paths (common/roots.h). A relative
// path may be meant below each of them.
using RootPaths = std::set<std::string>;

// Not thread-safe.
class Directories {
 public:
  struct Use {
    std::string directory;  // As its job spells it.
    std::string job_id;
  };

  // An empty directory is none. Of two uses of one spelling the later one counts.
  void Add(const std::string& directory, const std::string& job_id);
  void Remove(const std::string& directory, const std::string& job_id);

  // A use of what may be `path`, hold it or lie inside it. Without roots a relative path overlaps
  // with relative ones alone.
  std::optional<Use> Overlapping(const std::string& path, const RootPaths& roots) const;
  // A use of what may be `path` or hold it.
  std::optional<Use> Holding(const std::string& path, const RootPaths& roots) const;

 private:
  using Uses = std::map<std::string, Use>;
  enum class Relation { kOverlaps, kHolds };

  Uses& UsesLike(const std::string& directory);
  static const Use* Find(const Uses& uses, const std::string& key, Relation relation);
  const Use* FindAbsolute(const std::string& key, const RootPaths& roots, Relation relation) const;
  std::optional<Use> Find(const std::string& path, const RootPaths& roots, Relation relation) const;

  // By what each part of the path begins with a slash in: "/a/b", for the top "".
  Uses absolute_, relative_;
};

}  // namespace trainyard::controller
