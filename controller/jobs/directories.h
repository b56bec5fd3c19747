// Knows which live job uses which checkpoint directory. Paths are compared by their spelling alone,
// because the controller never looks at the file systems of the workers. Two paths overlap if,
// below the roots that their jobs may use on any worker, they may name the same directory, or one
// may lie inside the other. Symbolic links are left to the rank that claims the directory
// (train/checkpoint/claim.cc).

#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "controller/jobs/job.h"

namespace trainyard::controller {

// The directories, in any spelling, below which workers accept paths (common/roots.h). A relative
// path may lie below each root that both its job's namespace and a worker have.
using RootPaths = std::set<std::string>;

// Not thread-safe.
class Directories {
 public:
  struct Use {
    std::string directory;  // As the job spells it.
    std::string job_id;
    std::string name_space;
  };

  // Adds the job's checkpoint directory. Ignores an empty directory, and one that leads out of the
  // roots of its namespace, because no rank opens such a directory. If two jobs use the same
  // spelling, the later one counts.
  void Add(const JobFacts& facts, const std::string& job_id);
  void Remove(const JobFacts& facts, const std::string& job_id);

  // Returns a use whose directory may be `path`, contain it, or lie inside it. `own` are the roots
  // of the namespace of the path's job. If neither the namespace nor a worker has roots, a relative
  // path overlaps with relative paths alone.
  std::optional<Use> Overlapping(const std::string& path, const std::vector<std::string>& own,
                                 const RootPaths& workers) const;
  // Returns a use whose directory may be `path` or contain it.
  std::optional<Use> Holding(const std::string& path, const std::vector<std::string>& own,
                             const RootPaths& workers) const;

 private:
  // By the normalised path, in which each part begins with a slash: "/a/b". The key of the top is
  // "".
  using Uses = std::map<std::string, Use>;
  enum class Relation { kOverlaps, kHolds };
  // The relative paths of jobs with the same roots, and the roots below which workers accept them
  // now.
  struct Group {
    const std::vector<std::string>* own;
    RootPaths roots;  // Keys as in Uses. Empty: no root is known.
    const Uses* uses;
  };

  Uses& UsesLike(const JobFacts& facts);
  static const Use* Find(const Uses& uses, const std::string& key, Relation relation);
  static const Use* FindBelow(const Group& group, const std::string& key, Relation relation);
  const Use* FindAbsolute(const std::string& key, const std::vector<Group>& groups,
                          Relation relation) const;
  std::optional<Use> Find(const std::string& path, const std::vector<std::string>& own,
                          const RootPaths& workers, Relation relation) const;

  Uses absolute_;
  std::map<std::vector<std::string>, Uses> relative_;  // By the roots of the namespace.
};

}  // namespace trainyard::controller
