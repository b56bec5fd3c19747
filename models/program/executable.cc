#include "models/program/executable.h"

#include <optional>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "models/program/binder.h"
#include "models/program/communication_stream.h"
#include "models/program/memory.h"
#include "models/program/op.h"

namespace trainyard {
namespace {

Action ActionOf(List list) {
  switch (list) {
    case List::kInit:
      return Action::kInit;
    case List::kPrepare:
      return Action::kPrepare;
    case List::kForward:
      return Action::kForward;
    case List::kBackwardInput:
    case List::kBackwardWeight:
      return Action::kBackward;
    case List::kOptimizer:
      return Action::kOptimizer;
  }
  return Action::kInit;
}

bool IsPerSlot(Action action) { return action == Action::kForward || action == Action::kBackward; }

struct BoundInstance {
  Call call;
  List list;
  Stream stream;
  When when;
};

// An action bound once: for a chunk and slot, and for the first or the later micro-batches of a
// step. Actions without those have the first of each.
using BoundAction = std::vector<BoundInstance>;
struct ActionKey {
  Action action;
  int chunk = 0, slot = 0;
  bool later = false;
  auto operator<=>(const ActionKey&) const = default;
};

// What binding needs besides the instance.
struct BindContext {
  const Backend& backend;
  const ProgramMemory& memory;
  const CollectiveTable& collectives;
  CommunicationStream* communication;  // Null: the program has no such instances.
  std::vector<int> first_writer;       // By value id: the instance that writes it first.
};

// What one instance sees while it is bound.
class SlotBinder final : public Binder {
 public:
  SlotBinder(const BindContext& context, const ActionKey& key, int index, Stream stream)
      : context_(context), key_(key), index_(index), stream_(stream) {}

  const Backend& backend() const override { return context_.backend; }
  Tensor tensor(Value value) const override { return context_.memory.tensor(value, key_.slot); }
  Tensor flat(FlatBuffer buffer, const FlatRange& range) const override {
    return context_.memory.flat(buffer, range);
  }
  Write write(Value gradient) const override {
    const bool first = context_.first_writer[gradient.id] == index_;
    return key_.later || !first ? Write::kAdd : Write::kOverwrite;
  }
  StepState* step_state() const override { return context_.memory.step_state(); }
  Collective& collective(AxisSet axes) const override {
    const auto found = context_.collectives.find({stream_, axes});
    CHECK(found != context_.collectives.end()) << "no communicator for axes " << axes;
    return *found->second;
  }
  Call WaitForCommunication() const override {
    return [stream = context_.communication](Exec&) {
      if (stream != nullptr) stream->Wait();
    };
  }

 private:
  const BindContext& context_;
  ActionKey key_;
  int index_;  // Of the instance.
  Stream stream_;
};

}  // namespace

struct Executable::State {
  State(Program p, const Backend& b, const Exec& e) : program(std::move(p)), backend(b), exec(e) {}

  const Program program;
  const Backend& backend;
  Exec exec;
  std::optional<ProgramMemory> memory;  // Refers to `program`.
  std::map<ActionKey, BoundAction> bound;
  // Last, so that its thread ends before what it runs. Null: no such instances.
  std::unique_ptr<CommunicationStream> communication;

  void Bind(const CollectiveTable& collectives);
};

void Executable::State::Bind(const CollectiveTable& collectives) {
  size_t communications = 0;
  std::vector<int> first_writer(program.values.size(), -1);
  for (size_t i = 0; i < program.instances.size(); ++i) {
    communications += program.instances[i].stream == Stream::kCommunication;
    for (Value output : program.instances[i].outputs) {
      if (first_writer[output.id] < 0) first_writer[output.id] = int(i);
    }
  }
  if (communications > 0) communication = std::make_unique<CommunicationStream>(communications);
  const BindContext context{.backend = backend,
                            .memory = *memory,
                            .collectives = collectives,
                            .communication = communication.get(),
                            .first_writer = std::move(first_writer)};
  for (const Action action : {Action::kInit, Action::kPrepare, Action::kOptimizer}) {
    bound[{action}];  // Even where it has nothing to do.
  }
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const Instance& instance = program.instances[i];
    ActionKey key{ActionOf(instance.list)};
    const auto bind = [&] {
      const SlotBinder binder(context, key, int(i), instance.stream);
      bound[key].push_back(
          {instance.op->Bind(binder, instance), instance.list, instance.stream, instance.when});
    };
    if (!IsPerSlot(key.action)) {
      bind();
      continue;
    }
    key.chunk = program.chunk_of(instance.block);
    for (key.slot = 0; key.slot < memory->plan().slots[size_t(key.chunk)]; ++key.slot) {
      for (bool later : {false, true}) {
        if (later && key.action == Action::kForward) continue;
        key.later = later;
        bind();
      }
    }
  }
}

absl::StatusOr<std::unique_ptr<Executable>> Executable::Create(Program program,
                                                               const MemoryPlan& plan,
                                                               const Backend& backend,
                                                               const Exec& exec,
                                                               const CollectiveTable& collectives) {
  auto state = std::make_unique<State>(std::move(program), backend, exec);
  ASSIGN_OR_RETURN(state->memory, ProgramMemory::Allocate(state->program, plan, backend));
  state->Bind(collectives);
  return std::unique_ptr<Executable>(new Executable(std::move(state)));
}

Executable::Executable(std::unique_ptr<State> state) : state_(std::move(state)) {}
Executable::~Executable() = default;

void Executable::Run(Action action, const MicroBatch& micro_batch) {
  const std::vector<int>& slots = state_->memory->plan().slots;
  const bool half = action == Action::kBackwardInput || action == Action::kBackwardWeight;
  ActionKey key{half ? Action::kBackward : action};
  if (IsPerSlot(key.action)) {
    CHECK(micro_batch.chunk >= 0 && size_t(micro_batch.chunk) < slots.size())
        << "chunk " << micro_batch.chunk << " of " << slots.size();
    CHECK(micro_batch.slot >= 0 && micro_batch.slot < slots[size_t(micro_batch.chunk)])
        << "slot " << micro_batch.slot << " of " << slots[size_t(micro_batch.chunk)];
    key.chunk = micro_batch.chunk;
    key.slot = micro_batch.slot;
    key.later = key.action == Action::kBackward && !micro_batch.first;
  }
  for (const BoundInstance& instance : state_->bound.at(key)) {
    if (instance.when == When::kLastMicroBatch && !micro_batch.last) continue;
    if (half && (action == Action::kBackwardInput) != (instance.list == List::kBackwardInput)) {
      continue;
    }
    if (instance.stream == Stream::kCommunication) {
      state_->communication->Post(instance.call);
    } else {
      instance.call(state_->exec);
    }
  }
}

Tensor Executable::tensor(Value value, int slot) const {
  return state_->memory->tensor(value, slot);
}

void Executable::WriteInput(const std::string& name, int slot, std::span<const int32_t> data) {
  const auto found = state_->program.inputs.find(name);
  CHECK(found != state_->program.inputs.end()) << "no input " << name;
  const Tensor tensor = state_->memory->tensor(found->second, slot);
  CHECK(int64_t(data.size()) == tensor.elements() && tensor.dtype == DType::kI32)
      << name << ": " << data.size() << " elements for " << tensor.dtype << tensor.shape;
  state_->backend.CopyToDevice(tensor.data, data.data(), tensor.bytes());
}

void Executable::ReadOutput(const std::string& name, int slot, void* data, size_t bytes) const {
  const auto found = state_->program.outputs.find(name);
  CHECK(found != state_->program.outputs.end()) << "no output " << name;
  const Tensor tensor = state_->memory->tensor(found->second, slot);
  CHECK(bytes == tensor.bytes()) << name << ": " << bytes << " bytes for " << tensor.dtype
                                 << tensor.shape;
  state_->backend.CopyToHost(data, tensor.data, bytes);
}

void Executable::WriteStepState(const StepState& state) {
  state_->backend.CopyToDevice(state_->memory->step_state(), &state, sizeof(state));
}

StepState Executable::ReadStepState() const {
  StepState state;
  state_->backend.CopyToHost(&state, state_->memory->step_state(), sizeof(state));
  return state;
}

Tensor Executable::flat(FlatBuffer buffer, const FlatRange& range) const {
  return state_->memory->flat(buffer, range);
}

CommunicationSeconds Executable::TakeCommunicationSeconds() {
  if (state_->communication == nullptr) return {};
  const CommunicationStream::Seconds seconds = state_->communication->TakeSeconds();
  return {.waited = seconds.waited, .busy = seconds.busy};
}

const Program& Executable::program() const { return state_->program; }
const MemoryPlan& Executable::plan() const { return state_->memory->plan(); }
const Backend& Executable::backend() const { return state_->backend; }

}  // namespace trainyard
