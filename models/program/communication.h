// The communication of ops, and so of a step, by formula: nothing is run, and no peers are needed.

#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "kernels/collective/collective.h"
#include "models/program/program.h"

namespace trainyard {

// All calls of one operation.
struct Communication {
  CollectiveOp op = CollectiveOp::kBarrier;
  int64_t calls = 0;
  int64_t bytes = 0;  // Sent by this rank in all calls, counted as in OpCounts.
  // False if the number of bytes depends on the data: rows that go to the experts that they chose.
  // The numbers then are those of one round with an even choice.
  bool exact = true;
  // Of messages: a message goes at most this many places on in the ring of the group's ranks.
  int reach = 1;

  bool operator==(const Communication&) const = default;
};

// `calls` calls of an operation on a tensor of `bytes` bytes. If the tensor is made of slices,
// `bytes` counts the whole.
Communication CallsOf(CollectiveOp op, int64_t calls, int64_t bytes, int ranks);

// `times` messages to one rank and from another, at most `reach` places away. Each is posted before
// it is received (ops/ring.h).
std::vector<Communication> Exchanges(int64_t times, int64_t bytes, int reach = 1);

using CommunicationTable = std::map<std::pair<Group, CollectiveOp>, Communication>;
void AddTo(CommunicationTable& table, const Group& group, const Communication& communication);

// How often a step replays its instances.
struct StepReplays {
  int64_t micro_batches = 1;
  std::vector<int64_t> gathers;  // By block: how often its weights are gathered (ZeRO FULL).
};

// The communication of this rank's instances in one step. Does not count the messages between
// pipeline stages: the schedule sends them (train/step/communication.h).
CommunicationTable CommunicationOf(const Program& program, const StepReplays& replays);

}  // namespace trainyard
