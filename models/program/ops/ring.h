// Building blocks of ops that work on one piece while the next piece travels between ranks.

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/collective/collective.h"
#include "models/program/op.h"

namespace trainyard::ops {

// The ranks of a group that pass pieces on: each sends to the next rank and receives from the
// previous one.
struct Ring {
  int64_t ranks;
  int64_t rank;

  static Ring Of(const Collective& group) { return {.ranks = group.size(), .rank = group.rank()}; }

  int after(int64_t places) const { return int((rank + places) % ranks); }
  int before(int64_t places) const { return int((rank + ranks - places) % ranks); }
  int next() const { return after(1); }
  int previous() const { return before(1); }
};

// Rows [begin, begin + rows) of `whole`.
inline Tensor RowsOf(const Tensor& whole, int64_t begin, int64_t rows) {
  Tensor some = whole;
  some.shape = whole.shape.With(0, begin);
  some.data = static_cast<std::byte*>(whole.data) + some.bytes();
  some.shape = whole.shape.With(0, rows);
  return some;
}

// Piece i of `whole`, in pieces of `rows` rows.
inline Tensor Piece(const Tensor& whole, int64_t i, int64_t rows) {
  return RowsOf(whole, i * rows, rows);
}

// A message to one rank of the group, and a message from another.
struct Exchange {
  ConstTensor data;
  int to;
  Tensor received;
  int from;
};

// Returns a call that runs `call` while the messages travel. `call` must neither write `data` nor
// read `received`.
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
