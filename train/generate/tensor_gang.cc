#include "train/generate/tensor_gang.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "train/step/communication.h"

namespace trainyard {

absl::StatusOr<std::unique_ptr<TensorGang>> TensorGang::Create(CollectiveWorld& world) {
  std::unique_ptr<TensorGang> gang(new TensorGang(world));
  ASSIGN_OR_RETURN(gang->everyone_, world.Everyone());
  return gang;
}

absl::StatusOr<CollectiveTable> TensorGang::Join(const Program& program) {
  CHECK(program.mesh.ranks() == size() && program.mesh.rank == rank())
      << "rank " << program.mesh.rank << " of " << program.mesh.ranks() << " in a gang of "
      << size();
  CollectiveTable table;
  const std::map<Group, Connections> connections = ConnectionsOf(program, {});
  // The ranks meet in one order, because they have the same groups.
  for (const Group& group : program.Groups()) {
    std::unique_ptr<Collective>& joined = groups_[group];
    if (joined == nullptr) {
      const std::vector<int> members = program.mesh.Members(group.axes);
      const std::string name = absl::StrCat(Names(group.axes), " of ", members.front());
      ASSIGN_OR_RETURN(joined, world_.Group(name, members));
      RETURN_IF_ERROR(joined->Connect(connections.at(group)));
    }
    table[group] = joined.get();
  }
  return table;
}

void TensorGang::Share(std::span<int64_t> numbers) {
  everyone_->Broadcast(Tensor{{numbers.data(), DType::kI64, Shape{int64_t(numbers.size())}}}, 0);
}

void TensorGang::Tell(Order order, std::span<const int64_t> numbers) {
  CHECK(leads()) << "rank " << rank() << " does not lead";
  std::array<int64_t, 2> head = {int64_t(order), int64_t(numbers.size())};
  Share(head);
  std::vector<int64_t> copy(numbers.begin(), numbers.end());
  if (!copy.empty()) Share(copy);
}

TensorGang::Told TensorGang::Hear() {
  std::array<int64_t, 2> head = {};
  Share(head);
  Told told{.order = Order(head[0]), .numbers = std::vector<int64_t>(size_t(head[1]))};
  if (!told.numbers.empty()) Share(told.numbers);
  return told;
}

}  // namespace trainyard
