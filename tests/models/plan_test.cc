// Proves the memory plan: nothing that is alive is overwritten (checked apart from the plan's own
// check), memory is really shared, several micro-batches can be in flight, and sizes are stated
// before anything is allocated.
#include "models/program/plan.h"

#include <map>
#include <tuple>
#include <utility>

#include "gtest/gtest.h"
#include "models/program/op.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

Program Record(const ModelConfig& config, const Precision& precision = Precision::F32(),
               int64_t sequence = 8) {
  return RecordTraining(
      *CreateModel(config),
      {.record = {.precision = precision, .micro_batch = 2, .sequence = sequence}});
}

// Replays the program with tags instead of data: each value's memory must still hold the value's
// own tag whenever it is read. Messages of other stages come as early as they are expected.
void ExpectNothingIsOverwritten(const Program& program, const MemoryPlan& plan) {
  std::map<std::tuple<Arena, int, size_t>, int> owner;  // By 256-byte cell.
  const auto cells = [&](Value value, auto&& f) {
    const Placement& at = plan.placements[value.id];
    if (at.arena == Arena::kNone) return;
    for (size_t cell = at.offset; cell < at.offset + program.info(value).bytes();
         cell += kPlanAlignment) {
      f(owner[{at.arena, at.chunk, cell}]);
    }
  };
  const auto write = [&](Value value) { cells(value, [&](int& tag) { tag = value.id; }); };
  const auto receive = [&](std::vector<Crossing> Chunk::*crossings, Value Crossing::*message) {
    for (const Chunk& chunk : program.chunks) {
      for (const Crossing& crossing : chunk.*crossings) {
        if ((crossing.*message).valid()) write(crossing.*message);
      }
    }
  };
  for (const Instance& instance : program.instances) {
    if (instance.list == List::kPrepare) {
      for (Value output : instance.outputs) write(output);
    }
  }
  for (const auto& [name, value] : program.inputs) write(value);
  receive(&Chunk::received, &Crossing::value);
  bool forward = true;
  for (const Instance& instance : program.instances) {
    if (std::exchange(forward, forward && !IsBackward(instance.list)) != forward) {
      receive(&Chunk::sent, &Crossing::gradient);
    }
    for (Value input : instance.inputs) {
      cells(input, [&](int& tag) {
        ASSERT_EQ(tag, input.id) << program.info(input) << " was overwritten before "
                                 << instance.op->name() << " of block " << instance.block;
      });
    }
    for (int i = 0; i < int(instance.inputs.size()); ++i) {
      if (instance.op->Overwrites(i)) cells(instance.inputs[i], [](int& tag) { tag = -1; });
    }
    for (Value output : instance.outputs) write(output);
  }
  // The next micro-batch's, while this one's gradients are on their way.
  receive(&Chunk::received, &Crossing::value);
  for (const Chunk& chunk : program.chunks) {
    for (const Crossing& received : chunk.received) {
      if (!received.gradient.valid()) continue;
      cells(received.gradient, [&](int& tag) { ASSERT_EQ(tag, received.gradient.id); });
    }
  }
}

TEST(PlanTest, NothingAliveIsOverwritten) {
  for (const ModelConfig& config : {TinyLlama(), TinyLlama(/*tied=*/true), TinyGpt3(), TinyMoe()}) {
    for (const Precision& precision : {Precision::F64(), Precision::F32(), Precision::BF16()}) {
      const Program program = Record(config, precision);
      for (int slots : {1, 3}) {
        const MemoryPlan plan = PlanMemory(program, {.slots = {slots}});
        ExpectNothingIsOverwritten(program, plan);
        for (const auto& [name, value] : program.inputs) {
          EXPECT_EQ(plan.placements[value.id].arena, Arena::kSlot);
        }
      }
    }
  }
}

// Stages of two chunks each, which have others before and behind them. A message may come while
// another slot or chunk uses the scratch, and an activation's place is its gradient's.
TEST(PlanTest, MessagesBetweenStagesHaveAPlaceWhenTheyAreExpected) {
  ModelConfig config = TinyLlama();
  AsDecoder(config).layers = 4;
  for (int rank : {0, 1}) {
    for (const RecomputeOptions& recompute : {RecomputeOptions{}, RecomputeOptions{.blocks = 2}}) {
      const Program program =
          RecordTraining(*CreateModel(config), {.record = {.sequence = 8,
                                                           .mesh = {.pipeline = 2, .rank = rank},
                                                           .cuts = {1, 2, 3},
                                                           .stages = {0, 1, 0, 1}},
                                                .recompute = recompute});
      ASSERT_EQ(program.chunks.size(), 2u);
      for (int slots : {1, 3}) {
        const MemoryPlan plan = PlanMemory(program, {.slots = {slots, slots}});
        ExpectNothingIsOverwritten(program, plan);
        for (const Chunk& chunk : program.chunks) {
          for (const std::vector<Crossing>* crossings : {&chunk.received, &chunk.sent}) {
            for (const Crossing& crossing : *crossings) {
              for (Value message : {crossing.value, crossing.gradient}) {
                if (!message.valid()) continue;
                EXPECT_EQ(plan.placements[message.id].arena, Arena::kSlot) << program.info(message);
              }
            }
          }
          for (const Crossing& sent : chunk.sent) {
            EXPECT_EQ(plan.placements[sent.gradient.id].offset,
                      plan.placements[sent.value.id].offset);
          }
        }
      }
    }
  }
}

TEST(PlanTest, ValuesThatAreNeverAliveTogetherShareMemory) {
  const Program program = Record(TinyLlama());
  size_t sum = 0, longest = 0;
  for (const ValueInfo& info : program.values) {
    if (info.kind != ValueKind::kActivation) continue;
    sum += info.bytes();
    longest = std::max(longest, info.bytes());
  }
  const MemoryPlan plan = PlanMemory(program);
  EXPECT_LT(plan.slot_bytes[0], sum * 7 / 10);
  EXPECT_GE(plan.slot_bytes[0], longest);
  EXPECT_EQ(plan.scratch_bytes, 0u);
}

// The most bytes that any instance's operands and what else is alive then take: no layout has less.
// An output counts nothing where the op may write it over an input that ends there.
size_t LeastActivationBytes(const Program& program) {
  struct Life {
    int64_t first = -1, last = -1;
  };
  const int64_t end = int64_t(program.instances.size());
  std::vector<Life> lives(program.values.size());
  std::vector<int64_t> in_place(size_t(end) + 1);
  for (int64_t i = 0; i < end; ++i) {
    const Instance& instance = program.instances[size_t(i)];
    for (Value output : instance.outputs) {
      Life& life = lives[output.id];
      if (life.first < 0) life.first = i;
      life.last = i;
    }
    for (Value input : instance.inputs) lives[input.id].last = i;
  }
  for (const auto& [name, value] : program.inputs) lives[value.id] = {.first = 0, .last = end};
  const auto bytes = [&](Value value) { return int64_t(program.info(value).bytes()); };
  for (int64_t i = 0; i < end; ++i) {
    const Instance& instance = program.instances[size_t(i)];
    for (int o = 0; o < int(instance.outputs.size()); ++o) {
      for (int j = 0; j < int(instance.inputs.size()); ++j) {
        const Value output = instance.outputs[size_t(o)], input = instance.inputs[size_t(j)];
        if (!instance.op->MayAlias(o, j) || lives[input.id].last != i) continue;
        if (lives[output.id].first != i || bytes(output) != bytes(input)) continue;
        in_place[size_t(i)] += bytes(output);
        break;
      }
    }
  }
  std::vector<int64_t> change(size_t(end) + 2);
  for (size_t id = 0; id < lives.size(); ++id) {
    const ValueInfo& info = program.values[id];
    const bool placed = info.kind == ValueKind::kActivation || info.kind == ValueKind::kInput;
    if (!placed || lives[id].first < 0) continue;
    change[size_t(lives[id].first)] += int64_t(info.bytes());
    change[size_t(lives[id].last) + 1] -= int64_t(info.bytes());
  }
  int64_t alive = 0, most = 0;
  for (size_t i = 0; i < in_place.size(); ++i) {
    alive += change[i];
    most = std::max(most, alive - in_place[i]);
  }
  return size_t(most);
}

TEST(PlanTest, PeakActivationsAreNearTheLeastThatLivesAllow) {
  for (const char* preset :
       {"gpt2-124m", "llama3.2-1b", "llama3-8b", "qwen3-30b-a3b", "gpt-oss-20b", "dit-b-2"}) {
    const ModelConfig config = FindPreset(preset)->config;
    const int64_t sequence = std::min<int64_t>(1024, FactsOf(config).max_sequence);
    for (const Precision& precision : {Precision::F32(), Precision::BF16()}) {
      for (const RecomputeOptions& recompute : {RecomputeOptions{}, RecomputeOptions{.blocks = 4},
                                                RecomputeOptions{.norms_and_activations = true}}) {
        const Program program = RecordTraining(
            *CreateModel(config),
            {.record = {.precision = precision, .micro_batch = 2, .sequence = sequence},
             .recompute = recompute});
        const size_t planned = PlanMemory(program).activation_bytes();
        const size_t least = LeastActivationBytes(program);
        EXPECT_GE(planned, least) << preset;
        EXPECT_LE(double(planned), 1.01 * double(least)) << preset;
      }
    }
  }
}

// Logits and their gradient are there chunk by chunk. Half: bf16 gradients, say.
TEST(PlanTest, NothingIsAsLargeAsTheLogitsWouldBe) {
  for (const char* preset : {"gpt2-124m", "llama3.2-1b", "llama3-8b"}) {
    for (const Precision& precision : {Precision::F32(), Precision::BF16()}) {
      for (const int tensor : {1, 2}) {
        const ModelConfig config = FindPreset(preset)->config;
        const Program program =
            RecordTraining(*CreateModel(config), {.record = {.precision = precision,
                                                             .micro_batch = 4,
                                                             .sequence = 1024,
                                                             .mesh = {.tensor = tensor}}});
        const int64_t logits = program.tokens() * AsDecoder(config).vocab / tensor;
        for (const ValueInfo& info : program.values) {
          if (info.kind != ValueKind::kActivation) continue;
          EXPECT_LT(
              info.bytes(),
              size_t(logits) * SizeOf(precision.product({.kind = ProductKind::kHead}).result) / 2)
              << preset << ": " << info;
        }
      }
    }
  }
}

TEST(PlanTest, BytesAreThoseOfTheParametersInEachBuffer) {
  const Program program = Record(TinyLlama(), Precision::BF16());
  const MemoryPlan plan = PlanMemory(program);
  const size_t n = size_t(program.flat_elements);
  EXPECT_GE(int64_t(n), program.num_parameters);
  EXPECT_EQ(plan.parameter_bytes(), n * (4 + 4 + 4 + 4 + 2));
  EXPECT_EQ(PlanMemory(Record(TinyLlama())).parameter_bytes(), n * 16);
  EXPECT_EQ(
      PlanMemory(RecordInference(*CreateModel(TinyLlama()), {.sequence = 4})).parameter_bytes(),
      n * 4);
  EXPECT_EQ(plan.total_bytes(), plan.parameter_bytes() + plan.slot_bytes[0] + plan.constant_bytes);
}

TEST(PlanTest, TheSummarySaysWhatIsPlanned) {
  MemoryPlan plan;
  plan.slots = {2};
  plan.slot_bytes = {size_t{3} << 20};
  plan.flat_bytes[0] = size_t{5} << 30;
  EXPECT_EQ(plan.Summary(),
            "5.01 GiB (parameters, gradients and optimizer state 5.00 GiB, activations 6.00 MiB)");
  plan.workspace_bytes = size_t{1} << 30;
  EXPECT_EQ(plan.Summary(),
            "6.01 GiB (parameters, gradients and optimizer state 5.00 GiB, activations 6.00 MiB, "
            "workspace 1.00 GiB)");
}

// The sizes are cuDNN's own (kernels/cudnn_plans_test.cc compares them).
TEST(PlanTest, WhatAttentionKeepsOnAGpuIsPlannedOnce) {
  constexpr size_t kMiB = size_t{1} << 20;
  const ModelConfig config = FindPreset("llama3.1-8b")->config;
  const auto planned = [&](const Precision& precision, int64_t sequence, bool deterministic) {
    const Program program =
        RecordTraining(*CreateModel(config), {.record = {.precision = precision,
                                                         .micro_batch = 1,
                                                         .sequence = sequence,
                                                         .deterministic = deterministic}});
    const MemoryPlan plan = PlanMemory(program, {.gpu = true}), of_cpu = PlanMemory(program);
    EXPECT_EQ(of_cpu.workspace_bytes, 0u);
    EXPECT_EQ(plan.total_bytes(), of_cpu.total_bytes() + plan.workspace_bytes);
    return plan.workspace_bytes;
  };
  EXPECT_EQ(planned(Precision::BF16(), 8192, true), 4225 * kMiB + 512);
  EXPECT_EQ(planned(Precision::BF16(), 8192, false), 257 * kMiB + 512);
  EXPECT_EQ(planned(Precision::BF16(), 16384, true), 256u) << "a square would have 16 GiB";
  EXPECT_EQ(planned(Precision::F32(), 8192, true), 0u);
  // 1,000 tokens are padded to 1,024: forward copies qkv, out and lse, backward these and their
  // gradients.
  const size_t copies = 1024 * (2 * (6144 + 4096) + 4 * 32) + 1024 * (4 * (6144 + 4096) + 4 * 32);
  EXPECT_EQ(planned(Precision::BF16(), 1000, true),
            planned(Precision::BF16(), 1024, true) + copies);
}

// A ring's rank works on its own rows, on half of the keys before, and of half of its queries on
// the keys after. Each of these has a workspace. Results of a part have memory of their own.
TEST(PlanTest, WhatPartsOfAttentionKeepOnAGpuIsPlanned) {
  const ModelConfig config = FindPreset("llama3.1-8b")->config;
  const auto planned = [&](int rank, int64_t sequence) {
    const Program program =
        RecordTraining(*CreateModel(config), {.record = {.precision = Precision::BF16(),
                                                         .micro_batch = 1,
                                                         .sequence = sequence,
                                                         .mesh = {.context = 2, .rank = rank}}});
    return PlanMemory(program, {.gpu = true}).workspace_bytes;
  };
  // Rows of this rank: 1,024, of 32 heads of 128 and 8 key heads.
  constexpr size_t kRows = 1024, kHeads = 32, kShared = kHeads * 2 * 128 * 2;
  constexpr size_t kForward = kRows * kHeads * (128 * 2 + 4) + 2 * 256;
  EXPECT_LT(planned(0, 65536), size_t{1} << 30) << "a square would have 64 GiB";
  constexpr size_t kBackward = kRows * (kHeads + 16) * 128 * 2;
  const auto workspace = [](size_t queries, size_t keys) {
    return 256 + kHeads * queries * 4 + keys * kShared + kHeads * queries * keys * 2;
  };
  EXPECT_EQ(planned(0, 2048), kForward + kBackward + workspace(1024, 1024) + workspace(512, 1024));
  EXPECT_EQ(planned(1, 2048), kForward + kBackward + workspace(1024, 1024) + workspace(1024, 512));
  EXPECT_EQ(planned(0, 200), 0u);
}

// 18 bytes a parameter: bf16 copy; f32 master, gradient and two moments. Nothing is allocated.
TEST(PlanTest, LargeModelsArePlannedWithoutMemory) {
  const Program program = Record(FindPreset("llama3-8b")->config, Precision::BF16(), 4096);
  const MemoryPlan plan = PlanMemory(program);
  EXPECT_NEAR(double(plan.parameter_bytes()), 18 * 8.03e9, 0.1e9);
  EXPECT_GT(plan.activation_bytes(), size_t{30} << 30);
}

// Two micro-batches in flight (forward, forward, backward, backward) against one after the other.
TEST(PlanTest, SlotsKeepMicroBatchesApart) {
  const ModelConfig config = TinyLlama();
  const auto gradients = [&](int slots) {
    const auto executable = Bind(Record(config, Precision::F64()), 1, slots);
    executable->WriteStepState({.step = 1, .loss_scale = 1});
    const auto feed = [&](int k) {
      const auto tokens = Tokens(16, AsDecoder(config).vocab, uint64_t(k)),
                 targets = Tokens(16, AsDecoder(config).vocab, uint64_t(k + 10));
      executable->WriteInput("tokens", k % slots, tokens);
      executable->WriteInput("targets", k % slots, targets);
    };
    const auto micro = [&](int k) {
      return MicroBatch{.slot = k % slots, .first = k == 0, .last = k == 1};
    };
    if (slots == 1) {
      for (int k : {0, 1}) {
        feed(k);
        executable->Run(Action::kForward, micro(k));
        executable->Run(Action::kBackward, micro(k));
      }
    } else {
      feed(0), feed(1);
      executable->Run(Action::kForward, micro(0));
      executable->Run(Action::kForward, micro(1));
      executable->Run(Action::kBackward, micro(0));
      executable->Run(Action::kBackward, micro(1));
    }
    return ReadFlat(*executable, FlatBuffer::kGradient,
                    {.elements = executable->program().flat_elements});
  };
  EXPECT_EQ(gradients(1), gradients(2));
}

// Head and embedding write the tied table's gradient in the same list.
TEST(PlanDeathTest, ATiedGradientIsNotSplitOverListsThatRunApart) {
  Program program = Record(TinyLlama(/*tied=*/true));
  const PlanOptions split{.slots = {}, .split_backward = true};
  PlanMemory(program, split);
  for (Instance& instance : program.instances) {
    if (instance.op->name() == "embedding_backward") instance.list = List::kBackwardWeight;
  }
  EXPECT_DEATH(PlanMemory(program, split),
               "grad of model.embed_tokens.weight.* is written by lists");
}

// Backward of experts overwrites what forward kept for it. In turn: its first instance once more;
// as another's input; as an output of the program; one that is read as two inputs; a parameter.
TEST(PlanDeathTest, WhatIsOverwrittenIsReadByNobodyElse) {
  const Program program = Record(TinyMoe());
  const auto find = [](Program& p) {
    return std::find_if(p.instances.begin(), p.instances.end(), [](const Instance& instance) {
      return instance.op->name() == "expert_mlp_backward";
    });
  };
  const auto expect_death = [&](const auto& damage, const char* message) {
    Program damaged = program;
    damage(damaged, find(damaged));
    EXPECT_DEATH(PlanMemory(damaged), message);
    EXPECT_DEATH(PlanMemory(damaged, {.slots = {}, .split_backward = true}), message);
  };
  using It = std::vector<Instance>::iterator;
  const char* later = "expert_mlp_backward overwrites mlp.rows.*, which is used afterwards";
  expect_death([](Program& p, It it) { p.instances.insert(it + 1, Instance(*it)); }, later);
  expect_death([](Program&, It it) { (it + 1)->inputs.push_back(it->inputs[5]); }, later);
  expect_death([](Program& p, It it) { p.outputs["rows"] = it->inputs[5]; }, later);
  expect_death([](Program&, It it) { it->inputs[0] = it->inputs[5]; },
               "overwrites mlp.rows.*, which it reads as another input, too");
  expect_death([](Program&, It it) { it->inputs[5] = it->inputs[3]; },
               "experts.*, which is no activation");
}

}  // namespace
}  // namespace trainyard::testing
