#include "train/step/step_runner.h"

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "train/step/next_block.h"

namespace trainyard {
namespace {

const char* NameOf(PipelineAction::Kind kind) {
  switch (kind) {
    case PipelineAction::kForward:
      return "forward";
    case PipelineAction::kBackward:
      return "backward";
    case PipelineAction::kBackwardInput:
      return "backward_input";
    case PipelineAction::kBackwardWeight:
      return "backward_weight";
  }
  return "";
}

Action ActionOf(PipelineAction::Kind kind) {
  switch (kind) {
    case PipelineAction::kForward:
      return Action::kForward;
    case PipelineAction::kBackward:
      return Action::kBackward;
    case PipelineAction::kBackwardInput:
      return Action::kBackwardInput;
    case PipelineAction::kBackwardWeight:
      return Action::kBackwardWeight;
  }
  return Action::kForward;
}

std::vector<Value> ValuesOf(const std::vector<Crossing>& crossings) {
  std::vector<Value> values;
  for (const Crossing& crossing : crossings) values.push_back(crossing.value);
  return values;
}

// The valid gradients.
std::vector<Value> GradientsOf(const std::vector<Crossing>& crossings) {
  std::vector<Value> gradients;
  for (const Crossing& crossing : crossings) {
    if (crossing.gradient.valid()) gradients.push_back(crossing.gradient);
  }
  return gradients;
}

}  // namespace

StepState InitialState(const StepInput& input) {
  StepState state;
  state.step = input.step;
  state.learning_rate = input.learning_rate;
  const int64_t counted = input.tokens - input.counts.uncounted;
  CHECK(counted > 0) << input.counts.uncounted << " uncounted of " << input.tokens;
  state.loss_scale = 1 / double(counted);
  state.counted_share = double(counted) / double(input.tokens);
  const int64_t answers = input.counts.answer_targets;
  if (answers > 0) state.answer_scale = 1 / double(answers);
  state.clip_norm = input.clip_norm;
  state.seed = input.seed;
  return state;
}

PlanOptions PlanFor(const PipelineSchedule& schedule, int stage, DeviceKind device) {
  return {.slots = schedule.stages[size_t(stage)].slots,
          .split_backward = schedule.options.kind->split_backward,
          .gpu = device == DeviceKind::kCuda};
}

StepRunner::StepRunner(Executable& executable, PipelineSchedule schedule, Collective* pipeline)
    : executable_(executable),
      schedule_(std::move(schedule)),
      pipeline_(pipeline),
      stage_(pipeline == nullptr ? 0 : pipeline->rank()),
      clock_(executable) {
  CHECK((pipeline == nullptr ? 1 : pipeline->size()) == schedule_.options.stages)
      << "a schedule of " << schedule_.options.stages << " stages";
  expected_from_ = ExpectedFrom(schedule_, stage_);
  next_blocks_ = NextBlocks(executable_.program(), schedule_.stages[size_t(stage_)].actions);
}

StepOutput StepRunner::Step(const StepState& state, const StepBatch& batch,
                            const std::function<void()>& action_done) {
  CHECK(int64_t(batch.size()) == schedule_.options.micro_batches)
      << batch.size() << " micro-batches for a schedule of " << schedule_.options.micro_batches;
  CHECK(posted_.empty()) << "messages of the run before, for which nobody has waited";
  const std::vector<PipelineAction>& actions = schedule_.stages[size_t(stage_)].actions;
  clock_.Start(&PhaseSeconds::forward);
  executable_.WriteStepState(state);
  for (size_t i = 0; i < actions.size(); ++i) {
    const PipelineAction& action = actions[i];
    const bool forward = action.kind == PipelineAction::kForward;
    clock_.Enter(forward ? &PhaseSeconds::forward : &PhaseSeconds::backward);
    for (int later : expected_from_[i]) Expect(actions[size_t(later)]);
    Timeline::Note(
        executable_.timeline(), Track::kActions,
        {.name = NameOf(action.kind), .chunk = action.chunk, .index = action.micro_batch},
        [&] { Run(action, batch[size_t(action.micro_batch)], {.next_block = next_blocks_[i]}); });
    action_done();
  }
  WaitForAll();
  clock_.Enter(&PhaseSeconds::optimizer);
  Timeline::Note(executable_.timeline(), Track::kActions, {.name = "optimizer"},
                 [&] { executable_.Run(Action::kOptimizer, {.next_block = next_blocks_.back()}); });
  StepOutput output;
  output.phases = clock_.Stop();
  output.state = executable_.ReadStepState();
  return output;
}

StepState StepRunner::Forward(const StepBatch& batch, int64_t tokens,
                              const std::function<void(int64_t)>& done) {
  CHECK(posted_.empty()) << "messages of the run before, for which nobody has waited";
  executable_.WriteStepState(
      InitialState({.tokens = tokens, .counts = {.answer_targets = tokens}}));
  const int chunks = int(executable_.program().chunks.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const PipelineAction action{
          .kind = PipelineAction::kForward, .chunk = chunk, .micro_batch = int(i), .slot = 0};
      Expect(action);
      Run(action, batch[i], {.validation = true});
    }
    if (done) done(int64_t(i));
  }
  WaitForAll();
  return executable_.ReadStepState();
}

void StepRunner::Run(const PipelineAction& action, const MicroBatchData& data,
                     MicroBatch micro_batch) {
  const Program& program = executable_.program();
  const Chunk& chunk = program.chunks[size_t(action.chunk)];
  const bool forward = action.kind == PipelineAction::kForward;

  // Gradients arrive in the memory from which activations were sent, and the next micro-batch
  // overwrites both.
  for (const Crossing& sent : chunk.sent) WaitFor(sent.value, action.slot);
  if (forward) {
    slot_of_[{action.chunk, action.micro_batch}] = action.slot;
    for (const Crossing& received : chunk.received) WaitFor(received.gradient, action.slot);
    for (const auto& [name, value] : program.inputs) {
      if (program.chunk_of(program.info(value).block) != action.chunk) continue;
      const auto written = data.find(name);
      CHECK(written != data.end()) << "no data for input " << name;
      std::visit(
          [&](const auto& values) {
            executable_.WriteInput(value, action.slot, std::span(values));
          },
          written->second);
    }
  }
  for (Value received : ReceivedFor(action)) {
    if (const auto expected = expected_.extract({received, action.slot})) {
      Wait("receive", [&] { pipeline_->WaitReceive(expected.mapped()); });
    }
  }
  const auto received = ReceiveBefore(schedule_, stage_, action);
  if (forward && received && received->stays()) HandOver(action);

  micro_batch.chunk = action.chunk;
  micro_batch.slot = action.slot;
  micro_batch.first = action.micro_batch == 0;
  micro_batch.last = action.micro_batch == schedule_.options.micro_batches - 1;
  executable_.Run(ActionOf(action.kind), micro_batch);
  const auto message = SendAfter(schedule_, stage_, action);
  if (!message) return;
  if (message->stays()) {
    if (!forward) HandOver(action);
    return;
  }
  for (Value sent : SentAfter(action)) {
    const Tensor tensor = executable_.tensor(sent, action.slot);
    posted_.emplace(std::pair(sent, action.slot), pipeline_->PostSend(tensor, message->to));
  }
}

void StepRunner::HandOver(const PipelineAction& action) {
  const std::vector<Chunk>& chunks = executable_.program().chunks;
  const Chunk& earlier = chunks[size_t(action.chunk - 1)];
  const Chunk& later = chunks[size_t(action.chunk)];
  const int earlier_slot = slot_of_.at({action.chunk - 1, action.micro_batch});
  for (size_t i = 0; i < later.received.size(); ++i) {
    const Crossing &sent = earlier.sent[i], &received = later.received[i];
    if (action.kind == PipelineAction::kForward) {
      executable_.Copy(executable_.tensor(sent.value, earlier_slot),
                       executable_.tensor(received.value, action.slot));
    } else if (received.gradient.valid()) {
      executable_.Copy(executable_.tensor(received.gradient, action.slot),
                       executable_.tensor(sent.gradient, earlier_slot));
    }
  }
}

std::vector<Value> StepRunner::ReceivedFor(const PipelineAction& action) const {
  const Chunk& chunk = executable_.program().chunks[size_t(action.chunk)];
  return action.kind == PipelineAction::kForward ? ValuesOf(chunk.received)
                                                 : GradientsOf(chunk.sent);
}

std::vector<Value> StepRunner::SentAfter(const PipelineAction& action) const {
  const Chunk& chunk = executable_.program().chunks[size_t(action.chunk)];
  return action.kind == PipelineAction::kForward ? ValuesOf(chunk.sent)
                                                 : GradientsOf(chunk.received);
}

void StepRunner::Expect(const PipelineAction& action) {
  const auto message = ReceiveBefore(schedule_, stage_, action);
  if (!message || message->stays()) return;
  for (Value received : ReceivedFor(action)) {
    WaitFor(received, action.slot);  // Validation may still be sending from this memory.
    expected_[{received, action.slot}] =
        pipeline_->PostReceive(executable_.tensor(received, action.slot), message->from);
  }
}

void StepRunner::Wait(const char* name, const std::function<void()>& wait) {
  const PhaseClock::Phase phase = clock_.Enter(&PhaseSeconds::pipeline_bubble);
  Timeline::Note(executable_.timeline(), Track::kCompute, {.name = name, .label = "pipeline"},
                 wait);
  clock_.Enter(phase);
}

void StepRunner::WaitForAll() {
  while (!posted_.empty()) {
    const auto [value, slot] = posted_.begin()->first;
    WaitFor(value, slot);
  }
}

void StepRunner::WaitFor(Value value, int slot) {
  const auto [first, last] = posted_.equal_range({value, slot});
  for (auto it = first; it != last; ++it) {
    Wait("wait_send", [&] { pipeline_->WaitSend(it->second); });
  }
  posted_.erase(first, last);
}

Agreement Agree(Collective& collective, const Agreement& mine) {
  // Flags are counted, and each rank's seconds have their own slot. So one sum serves for all.
  constexpr size_t kFlags = 3;
  std::vector<double> joined(kFlags + size_t(collective.size()));
  joined[0] = mine.finite ? 0 : 1;
  joined[1] = mine.stop ? 1 : 0;
  joined[2] = mine.superseded ? 1 : 0;
  joined[kFlags + size_t(collective.rank())] = mine.seconds;
  collective.AllReduceSum(Tensor{{joined.data(), DType::kF64, Shape{int64_t(joined.size())}}});
  return {.finite = joined[0] == 0,
          .stop = joined[1] != 0,
          .superseded = joined[2] != 0,
          .seconds = *std::max_element(joined.begin() + kFlags, joined.end())};
}

}  // namespace trainyard
