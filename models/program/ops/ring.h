// What ops are made of that work on a piece while the next one travels between ranks.

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/collective/collective.h"
#include "models/program/op.h"

namespace trainyard::ops {

// Ranks of a group that pass pieces on: to the next, from the previous.
struct Ring {
  int64_t ranks;
  int64_t rank;

  static Ring Of(const Collective& group) { return {.ranks = group.size(), .rank = group.rank()}; }

  int after(int64_t places) const { return int((rank + places) % ranks); }
  int before(int64_t places) const { return int((rank + ranks - places) % ranks); }
  int next() const { return after(1); }
  int previous() const { return before(1); }
};

// Rows [begin, begin + rows).
inline Tensor RowsOf(const Tensor& whole, int64_t begin, int64_t rows) {
  Tensor some = whole;
  some.shape = whole.shape.With(0, begin);
  some.data = static_cast<std::byte*>(whole.data) + some.bytes();
  some.shape = whole.shape.With(0, rows);
  return some;
}

// The i-th of pieces of `rows` rows.
inline Tensor Piece(const Tensor& whole, int64_t i, int64_t rows) {
  return RowsOf(whole, i * rows, rows);
}

// A message to a rank of the group, and one from another.
struct Exchange {
  ConstTensor data;
  int to;
  Tensor received;
  int from;
};

// Runs `call`, which neither writes the one nor reads the other, while the messages travel.
inline Call WhileExchanging(Collective& group, const Exchange& exchange, Call call) {
  return [&group, exchange, call = std::move(call)](Exec& exec) {
    const ReceiveHandle coming = group.PostReceive(exchange.received, exchange.from);
    const SendHandle sent = group.PostSend(exchange.data, exchange.to);
    call(exec);
    group.WaitReceive(coming);
    group.WaitSend(sent);
  };
}

inline Call InOrder(std::vector<Call> calls) {
  return [calls = std::move(calls)](Exec& exec) {
    for (const Call& call : calls) call(exec);
  };
}

}  // namespace trainyard::ops
