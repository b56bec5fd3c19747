#include "models/program/executable.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/fill.h"
#include "kernels/sums/sum_words.h"
#include "models/program/binder.h"
#include "models/program/block_windows.h"
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
    case List::kJoin:
      return Action::kJoin;
    case List::kForward:
      return Action::kForward;
    case List::kBackwardInput:
    case List::kBackwardWeight:
      return Action::kBackward;
    case List::kOptimizer:
      return Action::kOptimizer;
    case List::kGather:
      break;
  }
  CHECK(false) << "no action runs list " << Name(list);
  std::abort();
}

bool IsPerSlot(Action action) { return action == Action::kForward || action == Action::kBackward; }

// An action for a chunk and a slot, and for the first or the later micro-batches of a step. Actions
// that do not depend on these have chunk 0, slot 0 and later = false.
struct ActionKey {
  Action action;
  int chunk = 0, slot = 0;
  bool later = false;
  auto operator<=>(const ActionKey&) const = default;
};

struct BoundInstance {
  Call call;
  const Instance* instance;
};

// Consecutive instances of an action. A segment is either one instance that may wait, post or be
// left out, or as many instances of one list, block and `when` as give the device the same kernels
// every time. A segment of the second kind is replayed at first, then captured, and from then on
// launched as a graph.
struct Segment {
  size_t begin = 0, end = 0;
  bool capturable = false;
  bool has_run = false;
  std::unique_ptr<Graph> graph = nullptr;
};

struct BoundAction {
  std::vector<BoundInstance> instances;
  std::vector<Segment> segments;  // Cover all instances.
};

bool IsCapturable(const Instance& instance) {
  const bool whenever = instance.when == When::kAlways || instance.when == When::kFirstMicroBatch;
  return instance.stream == Stream::kCompute && instance.awaits.empty() && whenever &&
         instance.op->is_capturable();
}

std::vector<Segment> SegmentsOf(const std::vector<BoundInstance>& instances, bool has_graphs) {
  std::vector<Segment> segments;
  for (size_t i = 0; i < instances.size(); ++i) {
    const Instance& instance = *instances[i].instance;
    const bool capturable = has_graphs && IsCapturable(instance);
    const Instance* const last = i == 0 ? nullptr : instances[i - 1].instance;
    if (capturable && last != nullptr && segments.back().capturable &&
        last->block == instance.block && last->list == instance.list &&
        last->when == instance.when) {
      ++segments.back().end;
    } else {
      segments.push_back({.begin = i, .end = i + 1, .capturable = capturable});
    }
  }
  return segments;
}

// Instances of the other lists belong to the whole model.
bool IsOfABlock(List list) {
  return list != List::kInit && list != List::kPrepare && list != List::kJoin &&
         list != List::kOptimizer;
}

Span SpanOf(const Instance& instance, const ActionKey& key) {
  return {.name = instance.op->name(),
          .label = instance.label,
          .block = IsOfABlock(instance.list) ? instance.block : -1,
          .chunk = key.chunk,
          .index = key.slot};
}

// The communication stream, and the calls that are posted to it in another order than the
// program's.
struct StreamAndWindows {
  // The calls that gather a block, and the ticket of the last of these calls that was posted.
  struct Gathers {
    std::vector<Call> calls;
    CommunicationStream::Ticket last = 0;
  };

  std::vector<CommunicationStream::Ticket> events;  // By event: the last posted call that signals.
  int next_block = BlockWindows::kNoBlock;          // For the running action.
  std::map<int, Gathers> gathers;                   // By block.
  BlockWindows windows{[this](int block) {
    Gathers& wanted = gathers.at(block);
    for (const Call& call : wanted.calls) wanted.last = stream->Post(call);
  }};
  // Null if the program has no instances for the stream. Last, because its thread must end before
  // the members that its calls use.
  std::unique_ptr<CommunicationStream> stream;

  StreamAndWindows() = default;
  StreamAndWindows(const StreamAndWindows&) = delete;  // `windows` refers to it.

  void Fetch(int block, int ahead) {
    windows.Fetch(block, ahead);
    stream->Wait(gathers.at(block).last);
  }
};

// The inputs of binding besides the instance.
struct BindContext {
  const Backend& backend;
  const ProgramMemory& memory;
  const Program& program;
  const CollectiveTable& collectives;
  StreamAndWindows& communication;
  std::vector<int> first_writer;  // By value id: the instance that writes it first.
};

// The Binder of one instance.
class SlotBinder final : public Binder {
 public:
  SlotBinder(const BindContext& context, const ActionKey& key, int index, Stream stream)
      : context_(context), key_(key), index_(index), stream_(stream) {}

  const Backend& backend() const override { return context_.backend; }
  Tensor tensor(Value value) const override { return context_.memory.tensor(value, key_.slot); }
  Tensor flat(FlatBuffer buffer, const FlatRange& range) const override {
    return context_.memory.flat(buffer, range);
  }
  Tensor frozen(FlatBuffer buffer, const FlatRange& bytes, DType dtype) const override {
    return context_.memory.frozen(buffer, bytes, dtype);
  }
  Write write(Value gradient) const override {
    if (context_.program.info(gradient).storage < 0) return Write::kOverwrite;
    const FlatRange& flat = context_.program.storage(gradient).flat;
    const bool later =
        key_.later && context_.program.gradient_buffer(flat) == FlatBuffer::kGradient;
    const bool first = context_.first_writer[gradient.id] == index_;
    return later || !first ? Write::kAdd : Write::kOverwrite;
  }
  Write write_sums() const override { return key_.later ? Write::kAdd : Write::kOverwrite; }
  StepState* step_state() const override { return context_.memory.step_state(); }
  Collective& collective(AxisSet axes) const override {
    const auto found = context_.collectives.find({stream_, axes});
    CHECK(found != context_.collectives.end()) << "no communicator for axes " << axes;
    return *found->second;
  }
  std::function<void()> CheckCommunication() const override {
    if (context_.collectives.empty()) return [] {};
    return [any = context_.collectives.begin()->second] { any->Check(); };  // Checks all groups.
  }
  Call WaitForCommunication() const override {
    return [stream = context_.communication.stream.get()](Exec&) {
      if (stream != nullptr) stream->WaitForAll();
    };
  }
  Call FetchBlock(int block, int ahead) const override {
    return [&communication = context_.communication, block, ahead](Exec&) {
      const bool last = ahead == BlockWindows::kNoBlock;
      communication.Fetch(block, last ? communication.next_block : ahead);
    };
  }
  Call ForgetBlocks() const override {
    return [&communication = context_.communication](Exec&) {
      communication.windows.Forget(communication.next_block);
    };
  }

 private:
  const BindContext& context_;
  ActionKey key_;
  int index_;  // Of `context_.program.instances`.
  Stream stream_;
};

}  // namespace

struct Executable::State {
  State(Program p, const Backend& b, int threads)
      : program(std::move(p)), backend(b), exec(b.NewExec(threads)) {}
  ~State() {
    communication.stream = nullptr;  // Ends first, because its calls use the collectives.
    for (const auto& [collective, exec] : followers) collective->Unfollow(*exec);
  }

  const Program program;
  const Backend& backend;
  Exec exec;
  std::optional<ProgramMemory> memory;  // Refers to `program`.
  std::map<ActionKey, BoundAction> bound;
  Timeline* timeline = nullptr;
  std::span<const BoundInstance> given;  // Last launched on the compute stream; several as a graph.
  std::atomic<const Instance*> communicating = nullptr;  // On the other stream: running or failed.
  // The collectives, and the Exec that each follows.
  std::vector<std::pair<Collective*, const Exec*>> followers;
  StreamAndWindows communication;  // Last, so that its thread ends before what its calls use.

  void Bind(const CollectiveTable& collectives);
  void Run(const ActionKey& key, const BoundAction& action, Segment& segment);
  void RunInstance(const ActionKey& key, const BoundInstance& bound);
  void BindInstance(const BindContext& context, int index);
  Call BindCall(const BindContext& context, const ActionKey& key, int index);
};

void Executable::State::Bind(const CollectiveTable& collectives) {
  size_t communications = 0;
  int events = 0;
  std::vector<int> first_writer(program.values.size(), -1);
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const Instance& instance = program.instances[i];
    communications += instance.stream == Stream::kCommunication;
    events = std::max(events, instance.signals + 1);
    for (int event : instance.awaits) events = std::max(events, event + 1);
    for (Value output : instance.outputs) {
      if (first_writer[output.id] < 0) first_writer[output.id] = int(i);
    }
  }
  communication.events.resize(size_t(events));
  if (communications > 0) {
    communication.stream = std::make_unique<CommunicationStream>(communications, backend, exec);
  }
  for (const auto& [group, collective] : collectives) {
    const bool beside = group.stream == Stream::kCommunication;
    followers.emplace_back(collective, beside ? &communication.stream->exec() : &exec);
    collective->Follow(backend, *followers.back().second);
  }
  const BindContext context{.backend = backend,
                            .memory = *memory,
                            .program = program,
                            .collectives = collectives,
                            .communication = communication,
                            .first_writer = std::move(first_writer)};
  for (const Action action : {Action::kInit, Action::kPrepare, Action::kJoin, Action::kOptimizer}) {
    bound[{action}];  // Exists also if there is nothing to do.
  }
  for (size_t i = 0; i < program.instances.size(); ++i) BindInstance(context, int(i));
  for (auto& [key, action] : bound) {
    action.segments = SegmentsOf(action.instances, backend.has_graphs());
  }
}

void Executable::State::BindInstance(const BindContext& context, int index) {
  const Instance& instance = program.instances[size_t(index)];
  if (instance.list == List::kGather) {
    communication.windows.Add(instance.block, program.window_of(instance.block));
    communication.gathers[instance.block].calls.push_back(BindCall(context, {}, index));
    return;
  }
  ActionKey key{ActionOf(instance.list)};
  const auto bind = [&] {
    bound[key].instances.push_back({BindCall(context, key, index), &instance});
  };
  if (!IsPerSlot(key.action)) return bind();
  key.chunk = program.chunk_of(instance.block);
  for (key.slot = 0; key.slot < memory->plan().slots[size_t(key.chunk)]; ++key.slot) {
    for (bool later : {false, true}) {
      if (later && key.action == Action::kForward) continue;
      key.later = later;
      bind();
    }
  }
}

void Executable::State::Run(const ActionKey& key, const BoundAction& action, Segment& segment) {
  const auto run = [&] {
    for (size_t i = segment.begin; i < segment.end; ++i) RunInstance(key, action.instances[i]);
  };
  // A timeline needs the time of each op, so no graphs then.
  if (!segment.capturable || timeline != nullptr || !std::exchange(segment.has_run, true)) {
    return run();
  }
  if (segment.graph == nullptr) segment.graph = backend.Capture(exec, run);
  given = std::span(action.instances).subspan(segment.begin, segment.end - segment.begin);
  segment.graph->Launch(exec);
}

void Executable::State::RunInstance(const ActionKey& key, const BoundInstance& bound) {
  const auto& [call, instance] = bound;
  for (int event : instance->awaits) {
    Span wait = SpanOf(*instance, key);
    wait.name = "wait";
    Timeline::Note(timeline, Track::kCompute, wait,
                   [&] { communication.stream->Wait(communication.events[size_t(event)]); });
  }
  if (instance->stream == Stream::kCompute) {
    given = {&bound, 1};
    return Timeline::Note(timeline, Track::kCompute, SpanOf(*instance, key), [&] { call(exec); });
  }
  const CommunicationStream::Ticket ticket = communication.stream->Post(call);
  if (instance->signals != Instance::kNoEvent) {
    communication.events[size_t(instance->signals)] = ticket;
  }
}

// A call of the communication stream adds its own span. RunInstance adds the spans of other calls.
Call Executable::State::BindCall(const BindContext& context, const ActionKey& key, int index) {
  const Instance& instance = program.instances[size_t(index)];
  Call call = instance.op->Bind(SlotBinder(context, key, index, instance.stream), instance);
  if (instance.stream == Stream::kCompute) return call;
  return [this, &instance, call = std::move(call), span = SpanOf(instance, key)](Exec& on) {
    communicating = &instance;
    Timeline::Note(timeline, Track::kCommunication, span, [&] { call(on); });
    communicating = nullptr;
  };
}

absl::StatusOr<std::unique_ptr<Executable>> Executable::Create(Program program,
                                                               const MemoryPlan& plan,
                                                               const Backend& backend, int threads,
                                                               const CollectiveTable& collectives) {
  auto state = std::make_unique<State>(std::move(program), backend, threads);
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
  StreamAndWindows& communication = state_->communication;
  communication.next_block = micro_batch.next_block;
  const auto found = state_->bound.find(key);
  // A chunk has no backward if neither the chunk nor a chunk before it has trainable parameters.
  if (found == state_->bound.end()) return;
  BoundAction& bound = found->second;
  for (Segment& segment : bound.segments) {
    const Instance& first = *bound.instances[segment.begin].instance;
    if (first.when == When::kFirstMicroBatch && !micro_batch.first) continue;
    if (first.when == When::kLastMicroBatch && !micro_batch.last) continue;
    if (first.when == When::kValidation && !micro_batch.validation) continue;
    if (half && (action == Action::kBackwardInput) != (first.list == List::kBackwardInput)) {
      continue;
    }
    state_->Run(key, bound, segment);
  }
}

Tensor Executable::tensor(Value value, int slot) const {
  return state_->memory->tensor(value, slot);
}

void Executable::Copy(const Tensor& from, const Tensor& to) {
  state_->backend.kernel<CastArgs>()(state_->exec, {.x = from, .y = to});
}

namespace {

Value OnlyInput(const Program& program, const std::string& name) {
  const auto [first, last] = program.inputs.equal_range(name);
  CHECK(first != last) << "no input " << name;
  CHECK(std::next(first) == last) << "several chunks have an input " << name;
  return first->second;
}

}  // namespace

void Executable::WriteInput(Value input, int slot, std::span<const int32_t> data) {
  const Tensor tensor = state_->memory->tensor(input, slot);
  CHECK(int64_t(data.size()) == tensor.elements() && tensor.dtype == DType::kI32)
      << state_->program.info(input).name << ": " << data.size() << " elements for " << tensor.dtype
      << tensor.shape;
  CopyToDevice(tensor.data, data.data(), tensor.bytes());
}

void Executable::WriteInput(Value input, int slot, std::span<const float> data) {
  const Tensor tensor = state_->memory->tensor(input, slot);
  CHECK(int64_t(data.size()) == tensor.elements())
      << state_->program.info(input).name << ": " << data.size() << " elements for " << tensor.dtype
      << tensor.shape;
  DispatchFloat(tensor.dtype, [&](auto scalar) {
    const std::vector<decltype(scalar)> rounded(data.begin(), data.end());
    CopyToDevice(tensor.data, rounded.data(), tensor.bytes());
  });
}

void Executable::WriteInput(Value input, int slot, std::span<const double> data) {
  const Tensor tensor = state_->memory->tensor(input, slot);
  CHECK(int64_t(data.size()) == tensor.elements() && tensor.dtype == DType::kF64)
      << state_->program.info(input).name << ": " << data.size() << " elements for " << tensor.dtype
      << tensor.shape;
  CopyToDevice(tensor.data, data.data(), tensor.bytes());
}

void Executable::WriteInput(const std::string& name, int slot, std::span<const int32_t> data) {
  WriteInput(OnlyInput(state_->program, name), slot, data);
}

void Executable::WriteInput(const std::string& name, int slot, std::span<const float> data) {
  WriteInput(OnlyInput(state_->program, name), slot, data);
}

void Executable::ZeroInput(Value input, int slot) {
  state_->backend.kernel<FillArgs>()(state_->exec,
                                     {.y = state_->memory->tensor(input, slot), .value = 0});
}

void Executable::ReadOutput(const std::string& name, int slot, void* data, size_t bytes) const {
  const auto found = state_->program.outputs.find(name);
  CHECK(found != state_->program.outputs.end()) << "no output " << name;
  const Tensor tensor = state_->memory->tensor(found->second, slot);
  CHECK(bytes == tensor.bytes()) << name << ": " << bytes << " bytes for " << tensor.dtype
                                 << tensor.shape;
  CopyToHost(data, tensor.data, bytes);
}

void Executable::WriteStepState(const StepState& state) {
  CopyToDevice(state_->memory->step_state(), &state, sizeof(state));
}

StepState Executable::ReadStepState() const {
  StepState state;
  CopyToHost(&state, state_->memory->step_state(), sizeof(state));
  return state;
}

void Executable::Record(Event& event) const { event.Record(state_->exec); }

uint32_t Executable::SumWords(std::span<const Tensor> views) const {
  StepState* const state = state_->memory->step_state();
  uint32_t words = 0;
  state_->backend.CopyToDevice(state_->exec, &state->words, &words, sizeof(words));
  const auto kernel = state_->backend.kernel<SumWordsArgs>();
  for (const Tensor& view : views) kernel(state_->exec, {.x = view, .state = state});
  CopyToHost(&words, &state->words, sizeof(words));
  return words;
}

void Executable::CopyToHost(void* host, const void* device, size_t bytes) const {
  state_->backend.CopyToHost(state_->exec, host, device, bytes);
  // The result of a collective that failed on the device must not be used. Check of any group looks
  // at all groups.
  if (!state_->followers.empty()) state_->followers.front().first->Check();
}

void Executable::CopyToDevice(void* device, const void* host, size_t bytes) {
  state_->backend.CopyToDevice(state_->exec, device, host, bytes);
}

Tensor Executable::flat(FlatBuffer buffer, const FlatRange& range) const {
  return state_->memory->flat(buffer, range);
}

Tensor Executable::master(const FlatRange& shard) const {
  const auto [buffer, range] = program().PlaceOfMaster(shard);
  return flat(buffer, range);
}

Tensor Executable::frozen(const ParameterBox& box) const {
  CHECK(box.frozen) << box.name << " is not frozen";
  return state_->memory->frozen(FlatBuffer::kFrozen, box.flat, *box.frozen);
}

void Executable::WaitForCommunication() {
  if (state_->communication.stream != nullptr) state_->communication.stream->WaitForAll();
}

void Executable::set_timeline(Timeline* timeline) {
  if (state_->communication.stream != nullptr) state_->communication.stream->Settle();
  if (state_->timeline != nullptr) state_->timeline->Detach();
  state_->timeline = timeline;
  const CommunicationStream* const beside = state_->communication.stream.get();
  if (timeline == nullptr) return;
  timeline->Attach(state_->backend, state_->exec, beside != nullptr ? &beside->exec() : nullptr);
}

Timeline* Executable::timeline() const { return state_->timeline; }

void Executable::set_wait_observer(WaitObserver* observer) {
  if (state_->communication.stream != nullptr) {
    state_->communication.stream->set_wait_observer(observer);
  }
}

const Instance* Executable::LastGiven(Stream stream) const {
  if (stream == Stream::kCommunication) return state_->communicating;
  return state_->given.empty() ? nullptr : state_->given.back().instance;
}

std::string Executable::LastGiven() const {
  const Program& program = state_->program;
  const std::span<const BoundInstance> given = state_->given;
  std::string text = absl::StrCat("rank ", program.mesh.rank, " of ", program.mesh.ranks());
  if (!given.empty()) {
    absl::StrAppend(&text, ", at or before ",
                    given.size() == 1 ? "" : absl::StrCat("a graph of ", given.size(), " ops, to "),
                    program.Describe(*given.back().instance));
  }
  if (const Instance* const communicating = state_->communicating) {
    absl::StrAppend(&text, "; communicating ", program.Describe(*communicating));
  }
  return text;
}

const Program& Executable::program() const { return state_->program; }
const MemoryPlan& Executable::plan() const { return state_->memory->plan(); }
const Backend& Executable::backend() const { return state_->backend; }

}  // namespace trainyard
