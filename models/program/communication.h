// What ops, and so a step, do among ranks: a formula, which counts nothing and needs no peers.

#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "kernels/collective/collective.h"
#include "models/program/program.h"

namespace trainyard {

// Calls of one operation.
struct Communication {
  CollectiveOp op = CollectiveOp::kBarrier;
  int64_t calls = 0;
  int64_t bytes = 0;  // That this rank sends in all of them, as OpCounts counts.
  // Where rows go to the experts that they chose, what is sent depends on the data: this is one
  // round of evenly chosen ones.
  bool exact = true;

  bool operator==(const Communication&) const = default;
};

// `calls` of an operation on a tensor (of the whole, where it is made of slices) of `bytes`.
Communication CallsOf(CollectiveOp op, int64_t calls, int64_t bytes, int ranks);

// So many messages to a rank and from another, each posted before it is received (ops/ring.h).
std::vector<Communication> Exchanges(int64_t times, int64_t bytes);

using CommunicationTable = std::map<std::pair<Group, CollectiveOp>, Communication>;
void AddTo(CommunicationTable& table, const Group& group, const Communication& communication);

// How often a step replays instances.
struct StepReplays {
  int64_t micro_batches = 1;
  std::vector<int64_t> gathers;  // By block: how often its weights are made whole (ZeRO FULL).
};

// This rank's instances in one step: what the program does, without the messages between pipeline
// stages, which the schedule sends (train/step/communication.h).
CommunicationTable CommunicationOf(const Program& program, const StepReplays& replays);

}  // namespace trainyard
