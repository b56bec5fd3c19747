// All ranks of a job, and the groups among them: one for each set of mesh axes that communicates.
// The implementations are those of Collective.

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

  // Joins a group. `members` are world ranks in group order, this one included. Each member must
  // call this with the same name and members, and any two ranks must make the groups that they
  // share in the same order. May wait for the other members. The world must outlive its groups. Not
  // thread-safe, but groups made before may be in use by other threads (not with nccl: nccl.h has
  // the reason). Errors:
  // - FAILED_PRECONDITION: another member joins a different group at this point.
  // - UNAVAILABLE: the world was aborted, or a member was lost.
  // - INTERNAL: this rank's device has failed.
  absl::StatusOr<std::unique_ptr<Collective>> Group(const std::string& name,
                                                    const std::vector<int>& members);
  // Returns the group of all ranks, in order. Its tensors are always in the host's memory.
  virtual absl::StatusOr<std::unique_ptr<Collective>> Everyone();

  // Makes groups created from now on count their operations in `activity`, which must outlive them.
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
