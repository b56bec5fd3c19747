// Which live job uses which checkpoint directory, by spelling alone: the controller never looks at
// the file systems of the workers. Two spellings overlap where, below the roots that their jobs
// have on any of the workers, one may be the other or lie inside it. What symbolic links make of a
// path, the rank finds out that claims its directory (train/checkpoint/claim.cc).

#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "controller/jobs/job.h"

namespace trainyard::controller {

// The directories, in any spelling, below which workers admit paths (common/roots.h). A relative
// path may be meant below each root that its job's namespace and a worker have in common.
using RootPaths = std::set<std::string>;

// Not thread-safe.
class Directories {
 public:
  struct Use {
    std::string directory;  // As its job spells it.
    std::string job_id;
    std::string name_space;
  };

  // The job's checkpoint directory. An empty one is none, and so is one that leads out of the
  // roots of its namespace: no rank opens it. Of two uses of one spelling the later one counts.
  void Add(const JobFacts& facts, const std::string& job_id);
  void Remove(const JobFacts& facts, const std::string& job_id);

  // A use of what may be `path`, hold it or lie inside it. The path is of a job whose namespace has
  // the roots `own`. Where neither a namespace nor a worker has roots, a relative path overlaps
  // with relative ones alone.
  std::optional<Use> Overlapping(const std::string& path, const std::vector<std::string>& own,
                                 const RootPaths& workers) const;
  // A use of what may be `path` or hold it.
  std::optional<Use> Holding(const std::string& path, const std::vector<std::string>& own,
                             const RootPaths& workers) const;

 private:
  // By what each part of the path begins with a slash in: "/a/b", for the top "".
  using Uses = std::map<std::string, Use>;
  enum class Relation { kOverlaps, kHolds };
  // The relative paths of jobs with the same roots, and where these roots are now.
  struct Group {
    const std::vector<std::string>* own;
    RootPaths roots;  // Keys, as in Uses. Empty: not known.
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
