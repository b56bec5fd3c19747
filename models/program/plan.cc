#include "models/program/plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "common/check.h"
#include "models/program/arena.h"
#include "models/program/op.h"

namespace trainyard {
namespace {

constexpr int64_t kNever = -2;
constexpr int64_t kStart = -1;  // Written by the host, before the first instance.
constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

// The time during which a value is alive, in indices of instances, both ends included.
struct Life {
  int64_t first = kNever;
  int64_t last = kNever;
  bool several_actions = false;  // Made by one action and read by another.
};

size_t RoundUp(size_t bytes) {
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

// The lives of a program's values.
struct ProgramLives {
  const Program& program;
  bool split;               // Weight gradients are delayed.
  std::vector<Life> lives;  // By value id.

  // The time at which instance i runs. Delayed weight gradients come after all others.
  int64_t TimeOf(size_t i) const {
    const bool delayed = split && program.instances[i].list == List::kBackwardWeight;
    return int64_t(i) + (delayed ? int64_t(program.instances.size()) : 0);
  }
};

// Checks that each gradient is written by only one of the two lists. Otherwise a delayed weight
// gradient could overwrite what the other list of its micro-batch has written before.
void CheckOneListPerGradient(const Program& program) {
  std::map<Value, List> written_in;
  for (const Instance& instance : program.instances) {
    for (Value output : instance.outputs) {
      if (program.info(output).kind != ValueKind::kParameterGradient) continue;
      const List list = written_in.emplace(output, instance.list).first->second;
      CHECK(list == instance.list) << program.info(output) << " is written by lists " << Name(list)
                                   << " and " << Name(instance.list) << ", which run apart";
    }
  }
}

// Keeps sent values until they have arrived, and received values throughout, because they may
// arrive while the stage runs other micro-batches.
void KeepMessages(const Chunk& chunk, std::vector<Life>& lives) {
  // The next micro-batch's value may arrive while this one's gradient is being sent.
  for (const Crossing& received : chunk.received) {
    for (Value value : {received.value, received.gradient}) {
      if (!value.valid()) continue;
      Life& life = lives[value.id];
      if (life.first == kNever) life.first = kStart;  // A gradient that no instance here reads.
      life.last = kEnd;
    }
  }
  for (const Crossing& crossing : chunk.sent) {
    // A gradient may use the memory of the value that was sent: the next stage computes the
    // gradient only after the whole value has arrived.
    Life& sent = lives[crossing.value.id];
    sent.several_actions = true;
    const Value answer = crossing.gradient;
    if (answer.valid() && lives[answer.id].first != kNever) {
      lives[answer.id].several_actions = true;
      sent.last = std::max(sent.last, lives[answer.id].first - 1);
    } else {
      sent.last = kEnd;
    }
  }
}

ProgramLives FindLives(const Program& program, bool split) {
  ProgramLives found{program, split, std::vector<Life>(program.values.size())};
  std::vector<Life>& lives = found.lives;
  std::vector<List> made_by(program.values.size(), List::kForward);
  const auto same_action = [&](List a, List b) {
    return a == b || (!split && IsBackward(a) && IsBackward(b));
  };
  // Values that the host or another stage writes.
  for (const auto& [name, value] : program.inputs) {
    lives[value.id] = {.first = kStart, .last = kStart};
  }
  for (const Chunk& chunk : program.chunks) {
    for (const Crossing& received : chunk.received) {
      lives[received.value.id] = {.first = kStart, .last = kStart};
    }
  }
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const Instance& instance = program.instances[i];
    const int64_t now = found.TimeOf(i);
    if (IsBackward(instance.list)) {
      for (const Crossing& sent : program.chunks[program.chunk_of(instance.block)].sent) {
        const Value received = sent.gradient;
        if (!received.valid() || lives[received.id].first != kNever) continue;
        lives[received.id] = {.first = now, .last = now};
        made_by[received.id] = List::kBackwardInput;
      }
    }
    for (Value input : instance.inputs) {
      Life& life = lives[input.id];
      const bool placed = program.info(input).kind != ValueKind::kParameter &&
                          program.info(input).kind != ValueKind::kParameterGradient;
      CHECK(!placed || life.first != kNever)
          << instance.op->name() << " reads " << program.info(input) << " before it is written";
      life.last = std::max(life.last, now);
      life.several_actions |= !same_action(made_by[input.id], instance.list);
    }
    for (Value output : instance.outputs) {
      Life& life = lives[output.id];
      if (life.first == kNever) {
        life.first = now;
        made_by[output.id] = instance.list;
      }
      life.last = std::max(life.last, now);
    }
  }
  // Inputs are small, and may be replayed without being written again.
  for (const auto& [name, value] : program.inputs) lives[value.id].last = kEnd;
  for (const auto& [name, value] : program.outputs) lives[value.id].last = kEnd;
  for (const Chunk& chunk : program.chunks) KeepMessages(chunk, lives);
  return found;
}

// Checks that no instance reads an overwritten input afterwards or at the same time.
void CheckOverwritten(const ProgramLives& found) {
  const Program& program = found.program;
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const Instance& instance = program.instances[i];
    for (int j = 0; j < int(instance.inputs.size()); ++j) {
      if (!instance.op->Overwrites(j)) continue;
      const Value input = instance.inputs[size_t(j)];
      CHECK(program.info(input).kind == ValueKind::kActivation)
          << instance.op->name() << " overwrites " << program.info(input)
          << ", which is no activation";
      CHECK(std::count(instance.inputs.begin(), instance.inputs.end(), input) == 1)
          << instance.op->name() << " overwrites " << program.info(input)
          << ", which it reads as another input, too";
      CHECK(found.lives[input.id].last == found.TimeOf(i))
          << instance.op->name() << " overwrites " << program.info(input)
          << ", which is used afterwards";
    }
  }
}

// Values that share one piece of memory: one value, or a chain in which each overwrites the one
// before.
struct InPlaceGroup {
  Life life;
  size_t bytes = 0;
  std::vector<Value> values;
};

// Joins an output with an input that its op may overwrite and that no later instance reads.
std::vector<InPlaceGroup> JoinInPlace(const ProgramLives& found,
                                      const std::vector<bool>& in_arena) {
  const Program& program = found.program;
  const std::vector<Life>& lives = found.lives;
  std::vector<InPlaceGroup> groups;
  std::vector<int> group_of(program.values.size(), -1);
  const auto start_group = [&](Value value) {
    group_of[value.id] = int(groups.size());
    groups.push_back({lives[value.id], RoundUp(program.info(value).bytes()), {value}});
  };
  const auto start_leaf = [&](Value value) {
    if (value.valid() && in_arena[value.id]) start_group(value);
  };
  for (const auto& [name, value] : program.inputs) start_leaf(value);
  for (const Chunk& chunk : program.chunks) {
    for (const Crossing& received : chunk.received) start_leaf(received.value);
    for (const Crossing& sent : chunk.sent) start_leaf(sent.gradient);
  }
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const Instance& instance = program.instances[i];
    const int64_t now = found.TimeOf(i);
    std::vector<bool> taken(instance.inputs.size());
    for (int o = 0; o < int(instance.outputs.size()); ++o) {
      const Value output = instance.outputs[o];
      if (!in_arena[output.id] || group_of[output.id] >= 0) continue;
      for (int j = 0; j < int(instance.inputs.size()) && group_of[output.id] < 0; ++j) {
        const Value input = instance.inputs[j];
        const bool dead = in_arena[input.id] && lives[input.id].last == now &&
                          program.info(input).kind == ValueKind::kActivation;
        const bool fits = program.info(input).bytes() == program.info(output).bytes();
        if (!dead || !fits || taken[j] || !instance.op->MayAlias(o, j)) continue;
        // The op reads the value also as another operand. Only elementwise ops would allow to
        // overwrite it.
        if (std::count(instance.inputs.begin(), instance.inputs.end(), input) > 1) continue;
        taken[j] = true;
        InPlaceGroup& group = groups[group_of[input.id]];
        group_of[output.id] = group_of[input.id];
        group.values.push_back(output);
        group.life.last = lives[output.id].last;
      }
      if (group_of[output.id] < 0) start_group(output);
    }
  }
  return groups;
}

size_t PlaceArena(const ProgramLives& found, const Placement& where,
                  const std::vector<bool>& in_arena, std::vector<Placement>& placements) {
  const std::vector<InPlaceGroup> groups = JoinInPlace(found, in_arena);
  std::vector<Piece> pieces;
  for (const InPlaceGroup& group : groups) {
    pieces.push_back({group.life.first, group.life.last, group.bytes});
  }
  const ArenaLayout layout = PlaceBestFit(pieces);
  if (const auto overlap = FindOverlap(pieces, layout.offsets)) {
    CHECK(false) << "values " << groups[overlap->first].values[0].id << " and "
                 << groups[overlap->second].values[0].id << " overlap in memory";
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    for (Value value : groups[g].values) {
      placements[value.id] = {where.arena, where.chunk, layout.offsets[g]};
    }
  }
  return layout.bytes;
}

size_t WorkspaceBytes(const Program& program) {
  std::map<std::string, size_t> kept;
  for (const Instance& instance : program.instances) {
    if (const auto found = instance.op->KeptOnGpu(program, instance)) {
      size_t& bytes = kept[found->name];
      bytes = std::max(bytes, found->bytes);
    }
  }
  size_t bytes = 0;
  for (const auto& [name, of_it] : kept) bytes += of_it;
  return bytes;
}

}  // namespace

MemoryPlan PlanMemory(const Program& program, const PlanOptions& options) {
  const size_t chunks = program.chunks.size();
  MemoryPlan plan;
  plan.slots = options.slots.empty() ? std::vector<int>(chunks, 1) : options.slots;
  CHECK(plan.slots.size() == chunks) << plan.slots.size() << " slots for " << chunks << " chunks";
  for (int slots : plan.slots) CHECK(slots >= 1) << slots << " slots";
  plan.placements.resize(program.values.size());
  if (options.split_backward) CheckOneListPerGradient(program);
  const ProgramLives found = FindLives(program, options.split_backward);
  CheckOverwritten(found);
  const std::vector<Life>& lives = found.lives;
  const bool one = chunks == 1 && plan.slots[0] == 1 && !options.split_backward;
  std::vector<std::vector<bool>> slot(chunks, std::vector<bool>(program.values.size()));
  std::vector<bool> scratch(program.values.size());
  for (size_t id = 0; id < program.values.size(); ++id) {
    const ValueInfo& info = program.values[id];
    if (lives[id].first == kNever) continue;
    if (info.kind == ValueKind::kConstant || info.kind == ValueKind::kStepConstant) {
      plan.placements[id] = {Arena::kConstant, 0, plan.constant_bytes};
      plan.constant_bytes += RoundUp(info.bytes());
      if (IsNarrow(info.dtype)) plan.rounded_bytes += info.bytes();
    } else if (info.kind == ValueKind::kInput || info.kind == ValueKind::kActivation) {
      const bool stays = one || info.kind == ValueKind::kInput || lives[id].several_actions ||
                         lives[id].last == kEnd;
      (stays ? slot[size_t(program.chunk_of(info.block))] : scratch)[id] = true;
    }
  }
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    plan.slot_bytes.push_back(
        PlaceArena(found, {Arena::kSlot, int(chunk), 0}, slot[chunk], plan.placements));
  }
  plan.scratch_bytes = PlaceArena(found, {Arena::kScratch, 0, 0}, scratch, plan.placements);

  for (size_t i = 0; i < kNumFlatBuffers; ++i) {
    const FlatBuffer buffer{uint8_t(i)};
    plan.flat_bytes[i] = program.BytesOf(buffer);
    plan.host_bytes[i] = program.HostBytesOf(buffer);
  }
  if (options.gpu) plan.workspace_bytes = WorkspaceBytes(program);
  return plan;
}

size_t MemoryPlan::parameter_bytes() const {
  return std::accumulate(flat_bytes.begin(), flat_bytes.end(), size_t{0});
}

size_t MemoryPlan::host_total_bytes() const {
  return std::accumulate(host_bytes.begin(), host_bytes.end(), size_t{0});
}

size_t MemoryPlan::activation_bytes() const {
  size_t bytes = scratch_bytes;
  for (size_t chunk = 0; chunk < slots.size(); ++chunk) {
    bytes += size_t(slots[chunk]) * slot_bytes[chunk];
  }
  return bytes;
}

std::string MemoryPlan::Summary() const {
  return absl::StrCat(
      FormatBytes(double(total_bytes())), " (parameters, gradients and optimizer state ",
      FormatBytes(double(parameter_bytes())), ", activations ",
      FormatBytes(double(activation_bytes())),
      rounded_bytes == 0 ? ""
                         : absl::StrCat(", rounded weights ", FormatBytes(double(rounded_bytes))),
      workspace_bytes == 0 ? ""
                           : absl::StrCat(", workspace ", FormatBytes(double(workspace_bytes))),
      ")",
      host_total_bytes() == 0 ? ""
                              : absl::StrCat(" and ", FormatBytes(double(host_total_bytes())),
                                             " of the host (optimizer state)"));
}

}  // namespace trainyard
