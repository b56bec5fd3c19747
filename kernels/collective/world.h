// All ranks of a job, and the groups among them: one for each set of mesh axes that communicates.
// Implementations as of Collective.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collective/collective.h"

namespace trainyard {

class CollectiveWorld {
 public:
  virtual ~CollectiveWorld() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Joins a group. `members` are world ranks in group order, this one among them; each member calls
  // with the same name and members, and any two ranks make the groups that they share in the same
  // order. May wait for the other members. The world must outlive its groups. Not thread-safe,
  // while groups made before may be in use by other threads.
  // Errors: FAILED_PRECONDITION another member joins a different group at this point; UNAVAILABLE
  // the world was aborted, or a member was lost.
  absl::StatusOr<std::unique_ptr<Collective>> Group(const std::string& name,
                                                    const std::vector<int>& members);
  // The group of all ranks, in order. What it carries lies in the host's memory, always.
  virtual absl::StatusOr<std::unique_ptr<Collective>> Everyone();

  // Groups made from now on count their operations there; it must outlive them.
  void CountIn(GroupActivity& activity) { activity_ = &activity; }

  // See Collective::Abort.
  virtual void Abort() = 0;

 protected:
  virtual absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(
      const std::string& name, const std::vector<int>& members) = 0;
  // This rank's place among `members`, which must be distinct ranks of the world.
  int RankIn(const std::vector<int>& members) const;

 private:
  GroupActivity* activity_ = nullptr;
};

}  // namespace trainyard
