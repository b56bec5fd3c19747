// The communication of one rank without any peer: notes what each operation would read and write.

#pragma once

#include <functional>

#include "kernels/collective/world.h"
#include "kernels/order/accesses.h"

namespace trainyard {

class OrderWorld final : public CollectiveWorld {
 public:
  // Whether a message received into `received` answers the one sent from `sent`: the peer sends the
  // former only when it has the latter, so both may use the same memory.
  using Answers = std::function<bool(const void* received, const void* sent)>;

  // `accesses` must outlive the world.
  OrderWorld(Accesses& accesses, int rank, int size, Answers answers)
      : accesses_(accesses), rank_(rank), size_(size), answers_(std::move(answers)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Abort() override {}

 private:
  absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(const std::string& name,
                                                        const std::vector<int>& members) override;

  Accesses& accesses_;
  const int rank_, size_;
  const Answers answers_;
};

}  // namespace trainyard
