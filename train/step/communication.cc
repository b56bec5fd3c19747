#include "train/step/communication.h"

#include <algorithm>
#include <set>

#include "models/program/block_windows.h"
#include "models/program/op.h"
#include "train/pipeline/message.h"
#include "train/step/next_block.h"

namespace trainyard {
namespace {

constexpr Group kStages{Stream::kCompute, Axis::kPipeline};

// How often a step gathers each block: the same calls as in Executable and StepRunner, without
// weights.
std::vector<int64_t> GathersOf(const Program& program, const std::vector<PipelineAction>& actions) {
  std::vector<int64_t> gathers(size_t(program.num_blocks));
  BlockWindows windows([&](int block) { ++gathers[size_t(block)]; });
  for (const Instance& instance : program.instances) {
    if (instance.list == List::kGather) {
      windows.Add(instance.block, program.window_of(instance.block));
    }
  }
  const std::vector<int> next = NextBlocks(program, actions);
  windows.Forget(next.back());  // The state that the step before has left.
  gathers.assign(gathers.size(), 0);
  for (size_t i = 0; i < actions.size(); ++i) {
    const std::vector<int>& fetched = FetchedBlocks(program, actions[i]);
    for (size_t k = 0; k < fetched.size(); ++k) {
      windows.Fetch(fetched[k], k + 1 < fetched.size() ? fetched[k + 1] : next[i]);
    }
  }
  windows.Forget(next.back());
  return gathers;
}

// Adds the pairs of a rank in a ring of `ranks` ranks that each send up to `reach` places on.
void AddRing(std::set<RankPair>& pairs, int rank, int ranks, int reach) {
  for (int places = 1; places <= std::min(reach, ranks - 1); ++places) {
    pairs.insert({rank, (rank + places) % ranks});
    pairs.insert({(rank + ranks - places) % ranks, rank});
  }
}

}  // namespace

CommunicationTable StepCommunication(const Program& program, const PipelineSchedule& schedule) {
  const ScheduleOptions& options = schedule.options;
  const int stage = program.mesh.coordinate(Axis::kPipeline);
  const std::vector<PipelineAction>& actions = schedule.stages[size_t(stage)].actions;
  CommunicationTable table = CommunicationOf(
      program, {.micro_batches = options.micro_batches, .gathers = GathersOf(program, actions)});
  for (const PipelineAction& action : actions) {
    const Chunk& chunk = program.chunks[size_t(action.chunk)];
    const bool forward = action.kind == PipelineAction::kForward;
    const auto add = [&](CollectiveOp op, const std::vector<Crossing>& crossings, bool gradients) {
      for (const Crossing& crossing : crossings) {
        const Value value = gradients ? crossing.gradient : crossing.value;
        if (!value.valid()) continue;  // A gradient that no trainable parameter needs.
        AddTo(table, kStages, CallsOf(op, 1, int64_t(program.info(value).bytes()), options.stages));
      }
    };
    const auto passes = [](const auto& message) { return message && !message->stays(); };
    if (passes(ReceiveBefore(schedule, stage, action))) {
      add(CollectiveOp::kReceive, forward ? chunk.received : chunk.sent, !forward);
    }
    if (passes(SendAfter(schedule, stage, action))) {
      for (const CollectiveOp op : {CollectiveOp::kSend, CollectiveOp::kWaitSend}) {
        add(op, forward ? chunk.sent : chunk.received, !forward);
      }
    }
  }
  return table;
}

std::map<Group, Connections> ConnectionsOf(const Program& program,
                                           const PipelineSchedule& schedule) {
  std::map<Group, Connections> connections;
  for (const Instance& instance : program.instances) {
    const AxisSet axes = instance.op->group();
    if (axes.empty()) continue;
    Connections& of_group = connections[{instance.stream, axes}];
    const int rank = program.mesh.coordinate(axes), ranks = program.mesh.size(axes);
    for (const Communication& c : instance.op->CommunicationOf(program, instance)) {
      if (c.op == CollectiveOp::kSend) AddRing(of_group.messages, rank, ranks, c.reach);
      if (c.op == CollectiveOp::kSendReceive) AddRing(of_group.exchanges, rank, ranks, c.reach);
      if (c.op == CollectiveOp::kAllToAll) AddRing(of_group.exchanges, rank, ranks, ranks - 1);
    }
  }
  if (program.mesh.pipeline == 1) return connections;
  const int stage = program.mesh.coordinate(Axis::kPipeline);
  Connections& stages = connections[kStages];
  for (const PipelineAction& action : schedule.stages[size_t(stage)].actions) {
    for (const std::optional<PipelineMessage>& message :
         {ReceiveBefore(schedule, stage, action), SendAfter(schedule, stage, action)}) {
      if (message && !message->stays()) stages.messages.insert({message->from, message->to});
    }
  }
  return connections;
}

}  // namespace trainyard
