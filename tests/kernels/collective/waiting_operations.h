// Every operation that waits for a peer, for tests of what ends the wait.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/collective/collective.h"

namespace trainyard::testing {

struct WaitingOperation {
  std::string name;
  // Cannot return before rank `last`, which calls nothing, takes part. `all` has an element for
  // each rank, as has `other`.
  std::function<void(Collective&, int last, Tensor all, Tensor other)> call;
};

inline Tensor ElementOf(const Tensor& tensor, int i) {
  return Tensor{{tensor.as<double>() + i, DType::kF64, Shape{1}}};
}

inline std::vector<WaitingOperation> WaitingOperations() {
  return {
      {"all_reduce_sum", [](Collective& g, int, Tensor all, Tensor) { g.AllReduceSum(all); }},
      {"all_reduce_max", [](Collective& g, int, Tensor all, Tensor) { g.AllReduceMax(all); }},
      {"broadcast", [](Collective& g, int last, Tensor all, Tensor) { g.Broadcast(all, last); }},
      {"barrier", [](Collective& g, int, Tensor, Tensor) { g.Barrier(); }},
      {"all_gather",
       [](Collective& g, int, Tensor all, Tensor) { g.AllGather(ElementOf(all, g.rank()), all); }},
      {"reduce_scatter_sum", [](Collective& g, int, Tensor all,
                                Tensor) { g.ReduceScatterSum(all, ElementOf(all, g.rank())); }},
      {"all_to_all",
       [](Collective& g, int, Tensor all, Tensor other) {
         const std::vector<int64_t> one_each(g.size(), 1);
         g.AllToAll(all, one_each, other, one_each);
       }},
      {"receive", [](Collective& g, int last, Tensor all, Tensor) { g.Receive(all, last); }},
      {"wait_send",
       [](Collective& g, int last, Tensor all, Tensor) { g.WaitSend(g.PostSend(all, last)); }},
      {"send_receive", [](Collective& g, int last, Tensor all,
                          Tensor other) { g.SendReceive(all, last, other, last); }},
  };
}

// Whether the group is inside this operation now.
inline bool Waits(const Collective& group, const std::string& operation) {
  const std::vector<FlightRecord> records = group.recorder().Records();
  return !records.empty() && Name(records.back().op) == operation &&
         records.back().left == absl::InfiniteFuture();
}

}  // namespace trainyard::testing
