#include "models/program/communication.h"

#include <algorithm>

#include "common/check.h"
#include "models/program/op.h"

namespace trainyard {
namespace {

int64_t TimesOf(const Instance& instance, const StepReplays& replays) {
  if (instance.when == When::kValidation) return 0;
  switch (instance.list) {
    case List::kInit:
    case List::kPrepare:
    case List::kJoin:
      return 0;
    case List::kForward:
    case List::kBackwardInput:
    case List::kBackwardWeight:
    case List::kOptimizer:
      return TimesInStep(instance, replays.micro_batches);
    case List::kGather:
      return replays.gathers.at(size_t(instance.block));
  }
  return 0;
}

}  // namespace

Communication CallsOf(CollectiveOp op, int64_t calls, int64_t bytes, int ranks) {
  return {.op = op, .calls = calls, .bytes = calls * SentBytes(op, bytes, ranks)};
}

std::vector<Communication> Exchanges(int64_t times, int64_t bytes, int reach) {
  std::vector<Communication> calls = {CallsOf(CollectiveOp::kSend, times, bytes, 2),
                                      CallsOf(CollectiveOp::kReceive, times, bytes, 2),
                                      CallsOf(CollectiveOp::kWaitSend, times, bytes, 2)};
  for (Communication& call : calls) call.reach = reach;
  return calls;
}

void AddTo(CommunicationTable& table, const Group& group, const Communication& communication) {
  if (communication.calls == 0) return;
  Communication& sum = table[{group, communication.op}];
  sum.op = communication.op;
  sum.calls += communication.calls;
  sum.bytes += communication.bytes;
  sum.exact &= communication.exact;
  sum.reach = std::max(sum.reach, communication.reach);
}

CommunicationTable CommunicationOf(const Program& program, const StepReplays& replays) {
  CommunicationTable table;
  for (const Instance& instance : program.instances) {
    const AxisSet axes = instance.op->group();
    if (axes.empty()) continue;
    const int64_t times = TimesOf(instance, replays);
    for (Communication c : instance.op->CommunicationOf(program, instance)) {
      c.calls *= times;
      c.bytes *= times;
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
