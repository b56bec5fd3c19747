#include "models/program/communication.h"

#include "common/check.h"
#include "models/program/op.h"

namespace trainyard {
namespace {

int64_t Replays(const Instance& instance, int64_t micro_batches) {
  switch (instance.list) {
    case List::kInit:
    case List::kPrepare:
      return 0;
    case List::kForward:
    case List::kBackwardInput:
    case List::kBackwardWeight:
      return instance.when == When::kLastMicroBatch ? 1 : micro_batches;
    case List::kOptimizer:
      return 1;
    case List::kGather:  // At each pass over its block, and once ahead of the next step.
      return 2 * micro_batches + 1;
  }
  return 0;
}

}  // namespace

Communication CallsOf(CollectiveOp op, int64_t calls, int64_t bytes, int ranks) {
  return {.op = op, .calls = calls, .bytes = calls * SentBytes(op, bytes, ranks)};
}

std::vector<Communication> Exchanges(int64_t times, int64_t bytes) {
  return {CallsOf(CollectiveOp::kSend, times, bytes, 2),
          CallsOf(CollectiveOp::kReceive, times, bytes, 2),
          CallsOf(CollectiveOp::kWaitSend, times, bytes, 2)};
}

void AddTo(CommunicationTable& table, const Group& group, const Communication& communication) {
  if (communication.calls == 0) return;
  Communication& sum = table[{group, communication.op}];
  sum.op = communication.op;
  sum.calls += communication.calls;
  sum.bytes += communication.bytes;
  sum.exact &= communication.exact;
}

CommunicationTable CommunicationOf(const Program& program, int64_t micro_batches) {
  CommunicationTable table;
  for (const Instance& instance : program.instances) {
    const AxisSet axes = instance.op->group();
    if (axes.empty()) continue;
    const int64_t replays = Replays(instance, micro_batches);
    for (Communication c : instance.op->CommunicationOf(program, instance)) {
      c.calls *= replays;
      c.bytes *= replays;
      c.exact &= instance.list != List::kGather;
      AddTo(table, {instance.stream, axes}, c);
    }
  }
  return table;
}

std::vector<Communication> Op::CommunicationOf(const Program&, const Instance&) const {
  CHECK(group().empty()) << name() << " does not say what it sends";
  return {};
}

}  // namespace trainyard
