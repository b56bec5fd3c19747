// Proves what ZeRO FULL needs and when it may touch it: the planned bytes are the states' n-th part
// and two blocks, found here from the shapes alone; nothing outside of them is touched; no window
// is read before it is gathered, or written before what was in it is summed.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "models/program/op.h"
#include "tests/models/tiny.h"
#include "tests/testing/guarded_backend.h"
#include "tests/testing/ranks.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kSequence = 8;

Program Record(const ModelConfig& config, const Precision& precision, int data, int rank = 0) {
  return RecordTraining(*CreateModel(config), {.record = {.precision = precision,
                                                          .sequence = kSequence,
                                                          .mesh = {.data = data, .rank = rank}},
                                               .zero = Zero::kFull});
}

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Elements of a block's parameters, by the list that writes their gradients. A block has one bucket
// a list; storages begin on multiples of 64 elements, and so do shards.
struct BlockElements {
  std::vector<int64_t> input, weight;  // Storages of list backward_input and backward_weight.
  static int64_t Bucket(const std::vector<int64_t>& storages, int64_t ranks) {
    int64_t sum = 0;
    for (int64_t elements : storages) sum += RoundUp(elements, 64);
    return RoundUp(sum, 64 * ranks);
  }
};

std::vector<BlockElements> LlamaBlocks(const ModelConfig& config) {
  const DecoderConfig& c = AsDecoder(config);
  const int64_t query = c.heads * c.head_dim, key = c.kv_heads * c.head_dim;
  std::vector<BlockElements> blocks = {{.input = {c.vocab * c.hidden}, .weight = {}}};
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    blocks.push_back({.input = {c.hidden, c.hidden},
                      .weight = {(query + 2 * key) * c.hidden, c.hidden * query,
                                 2 * c.ffn * c.hidden, c.hidden * c.ffn}});
  }
  // The head's gradient is made in chunks with its input's.
  blocks.push_back({.input = {c.hidden, c.vocab * c.hidden}, .weight = {}});
  return blocks;
}

int64_t BytesFromShapes(const ModelConfig& config, const Precision& p, int64_t ranks) {
  int64_t all = 0;
  std::array<int64_t, 2> compute = {}, input = {}, weight = {};  // By window.
  const std::vector<BlockElements> blocks = LlamaBlocks(config);
  for (size_t b = 0; b < blocks.size(); ++b) {
    const int64_t i = BlockElements::Bucket(blocks[b].input, ranks);
    const int64_t w = BlockElements::Bucket(blocks[b].weight, ranks);
    all += i + w;
    compute[b % 2] = std::max(compute[b % 2], i + w);
    input[b % 2] = std::max(input[b % 2], i);
    weight[b % 2] = std::max(weight[b % 2], w);
  }
  const int64_t copy = p.weight == p.master ? 0 : int64_t(SizeOf(p.weight));
  const int64_t state = int64_t(SizeOf(p.master)) + 2 * int64_t(SizeOf(p.moment)) +
                        int64_t(SizeOf(p.gradient)) + copy;
  return all / ranks * state + (compute[0] + compute[1]) * int64_t(SizeOf(p.weight)) +
         (input[0] + input[1] + weight[0] + weight[1]) * int64_t(SizeOf(p.gradient));
}

TEST(ZeroFullPlan, BytesAreAShardOfTheStatesAndTwoBlocks) {
  for (const Precision& precision : {Precision::F64(), Precision::F32(), Precision::BF16()}) {
    for (int ranks : {2, 3, 8}) {
      const MemoryPlan plan = PlanMemory(Record(TinyLlama(), precision, ranks));
      EXPECT_EQ(int64_t(plan.parameter_bytes()), BytesFromShapes(TinyLlama(), precision, ranks))
          << ranks << " ranks, compute " << precision.weight;
      const Program none = RecordTraining(
          *CreateModel(TinyLlama()),
          {.record = {.precision = precision, .sequence = kSequence, .mesh = {.data = ranks}}});
      EXPECT_EQ(plan.activation_bytes(), PlanMemory(none).activation_bytes());
    }
  }
}

// docs/parallelism.md: 18 bytes a parameter divided by 8, and 8 GB of windows: weights of embedding
// and head; gradients of both, and of two layers.
TEST(ZeroFullPlan, AnEighthOfALargeModel) {
  const ModelConfig config = FindPreset("llama3-8b")->config;
  const MemoryPlan plan = PlanMemory(Record(config, Precision::BF16(), 8));
  const double vocabulary = 128256.0 * 4096, layer = 218.1e6, all = 32 * layer + 2 * vocabulary;
  EXPECT_NEAR(double(plan.parameter_bytes()),
              18 * all / 8 + 2 * 2 * vocabulary + 4 * (2 * vocabulary + 2 * layer), 0.01e9);
}

// What a tied table would save by a window, its two uses would take back.
TEST(ZeroFullPlan, WhatTwoBlocksUseStaysWhole) {
  const Program program = Record(TinyLlama(/*tied=*/true), Precision::F32(), 2);
  int whole = 0;
  for (const ParameterStorage& storage : program.storages) {
    if (program.weight_buffer(storage.flat) == FlatBuffer::kComputeWindow) continue;
    EXPECT_EQ(storage.parameters.front().name, "model.embed_tokens.weight");
    EXPECT_EQ(program.gradient_buffer(storage.flat), FlatBuffer::kGradient);
    ++whole;
  }
  EXPECT_EQ(whole, 1);
}

// In bf16, an expert's bias of a few units would decide in steps of a 64th, and an update is a
// thousandth. Every rank has the whole master of such parameters, however others are divided.
TEST(UnroundedParameters, AreReadFromTheMaster) {
  for (const ModelConfig& config : {TinyOf("deepseek_v3"), TinyOf("nemotron_h")}) {
    for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kFull}) {
      SCOPED_TRACE(::testing::Message() << config.family() << ", ZeRO " << int(zero));
      const Program program = RecordTraining(
          *CreateModel(config),
          {.record = {.precision = Precision::BF16(), .sequence = kSequence, .mesh = {.data = 2}},
           .zero = zero});
      std::set<std::string> unrounded;
      for (const ParameterStorage& storage : program.storages) {
        const std::string& name = storage.parameters.front().name;
        const bool of_master = program.info(storage.weight).dtype == DType::kF32;
        EXPECT_EQ(program.weight_buffer(storage.flat) == FlatBuffer::kMaster, of_master) << name;
        if (!of_master) continue;
        EXPECT_LE(program.InMaster(storage.flat).end(), program.shard_elements) << name;
        unrounded.insert(name.substr(name.rfind('.') + 1));
      }
      std::set<std::string> wanted = {"e_score_correction_bias"};
      if (config.family() == "nemotron_h") wanted.insert({"A_log", "D", "dt_bias"});
      EXPECT_EQ(unrounded, wanted);
    }
  }
}

TEST(ZeroFullPlan, OneRankSharesNothingOut) {
  const Program full = Record(TinyLlama(), Precision::BF16(), 1);
  EXPECT_FALSE(full.has_windows());
  const Program none =
      RecordTraining(*CreateModel(TinyLlama()),
                     {.record = {.precision = Precision::BF16(), .sequence = kSequence}});
  EXPECT_EQ(full.Dump(), none.Dump());
}

// In every list that reads weights in a window, a fetch of the block stands before; the block ahead
// is the next to be fetched, in the other window.
// Of the first model, everything but the norms is frozen, too.
TEST(ZeroFullProgram, BlocksAreFetchedBeforeTheyAreRead) {
  const auto but_norms = [](const ParameterSpec& spec) {
    return !absl::StrContains(spec.name, "norm");
  };
  for (const auto& [config, frozen] :
       {std::pair<ModelConfig, Recorder::IsFrozen>{TinyLlama(), but_norms},
        {TinyLlama(), nullptr},
        {TinyLlama(/*tied=*/true), nullptr},
        {TinyGpt3(), nullptr}}) {
    const Program program = RecordTraining(
        *CreateModel(config),
        {.record = {.precision = Precision::F32(), .sequence = kSequence, .mesh = {.data = 2}},
         .zero = Zero::kFull,
         .frozen = frozen});
    std::map<List, std::pair<int, int>> fetched;  // Block, and the one ahead.
    int fetches = 0;
    for (const Instance& instance : program.instances) {
      if (instance.op->name() == "fetch") {
        int block = -1, ahead = -1;
        CHECK(std::sscanf(instance.op->attributes().c_str(), "block=%d ahead=%d", &block, &ahead) ==
              2);
        EXPECT_EQ(block, instance.block);
        EXPECT_TRUE(!fetched.contains(instance.list) || fetched[instance.list].second == block);
        EXPECT_TRUE(ahead < 0 || program.window_of(block) != program.window_of(ahead));
        fetched[instance.list] = {block, ahead};
        ++fetches;
      }
      for (Value input : instance.inputs) {
        if (program.info(input).kind != ValueKind::kParameter) continue;
        const ParameterStorage& storage = program.storage(input);
        const bool windowed =
            storage.frozen ? program.frozen_buffer(storage.flat) == FlatBuffer::kFrozenWindow
                           : program.weight_buffer(storage.flat) == FlatBuffer::kComputeWindow;
        if (!windowed) continue;
        ASSERT_TRUE(fetched.contains(instance.list)) << instance.op->name();
        EXPECT_EQ(fetched[instance.list].first, instance.block) << instance.op->name();
      }
    }
    EXPECT_GE(fetches, 2 * int(AsDecoder(config).layers));
    for (const auto& [list, last] : fetched) EXPECT_EQ(last.second, -1) << Name(list);
  }
}

// Two micro-batches, element by element: what the communication stream works on in a gradient
// window is not written until an event after that was awaited.
TEST(ZeroFullProgram, AGradientWindowIsNotWrittenBeforeItsSumIsDone) {
  for (const ModelConfig& config : {TinyLlama(), TinyGpt3()}) {
    const Program program = Record(config, Precision::F32(), 2);
    const FlatMap& place = program.place(FlatBuffer::kGradientWindow);
    constexpr int kFree = -1, kUnderWay = -2;
    std::vector<int> event(size_t(place.elements()), kFree);  // After which it may be written.
    const auto set = [&](int from, int to) { std::replace(event.begin(), event.end(), from, to); };
    // Of a tied table, which has no window: none.
    const auto in_window = [&](const FlatRange& flat) {
      const std::optional<int64_t> at = place.Find(flat);
      return at ? std::span(event).subspan(size_t(*at), size_t(flat.elements)) : std::span<int>();
    };
    int sums = 0;
    for (int micro_batch : {0, 1}) {
      for (const Instance& instance : program.instances) {
        for (int awaited : instance.awaits) set(awaited, kFree);
        if (instance.op->name() == "scatter_bucket") {
          FlatRange flat;
          CHECK(std::sscanf(instance.op->attributes().c_str(), "flat=%ld+%ld", &flat.offset,
                            &flat.elements) == 2);
          for (int& e : in_window(flat)) e = kUnderWay;
          ++sums;
        }
        if (instance.signals != Instance::kNoEvent) set(kUnderWay, instance.signals);
        for (Value output : instance.outputs) {
          if (program.info(output).kind != ValueKind::kParameterGradient) continue;
          for (int e : in_window(program.storage(output).flat)) {
            ASSERT_EQ(e, kFree) << program.info(output) << " of micro-batch " << micro_batch;
          }
        }
      }
    }
    EXPECT_EQ(sums, 2 * int(program.buckets.size()));
  }
}

struct Outcome {
  StepState state;
  std::vector<double> weights;  // This rank's.
};

// Two steps of two micro-batches on two ranks. `poison`: whatever the windows hold in the beginning
// is no number.
std::vector<Outcome> TwoSteps(bool poison) {
  std::vector<Outcome> outcomes(2);
  const auto errors = RunWorlds(2, [&](CollectiveWorld& world) {
    const GuardedBackend backend;
    Program program = Record(TinyLlama(), Precision::F32(), 2, world.rank());
    std::vector<std::unique_ptr<Collective>> groups;
    CollectiveTable collectives;
    for (const Group& group : program.Groups()) {
      groups.push_back(*world.Group(std::to_string(groups.size()), {0, 1}));
      collectives[group] = groups.back().get();
    }
    const MemoryPlan plan = PlanMemory(program);
    const auto made = Executable::Create(std::move(program), plan, backend, 1, collectives);
    CHECK(made.ok()) << made.status();
    Executable& executable = **made;
    EXPECT_EQ(backend.total(), plan.total_bytes() + sizeof(StepState));
    executable.WriteStepState({.seed = 1});
    executable.Run(Action::kInit);
    executable.Run(Action::kPrepare);
    for (const Bucket& bucket : executable.program().buckets) {
      if (!poison) break;
      for (FlatBuffer window : {FlatBuffer::kComputeWindow, FlatBuffer::kGradientWindow}) {
        const Tensor tensor = executable.flat(window, bucket.flat);
        std::fill_n(tensor.as<float>(), tensor.elements(), NAN);
      }
    }
    for (int step : {1, 2}) {
      executable.WriteStepState(
          {.step = step, .learning_rate = 0.01, .loss_scale = 0.1, .clip_norm = 0.5});
      for (int k : {0, 1}) {
        const uint64_t seed = uint64_t(10 * step + 2 * k + world.rank());
        executable.WriteInput("tokens", 0, Tokens(kSequence, 13, seed));
        executable.WriteInput("targets", 0, Tokens(kSequence, 13, seed + 100));
        executable.Run(Action::kForward, {.first = k == 0, .last = k == 1});
        executable.Run(Action::kBackward, {.first = k == 0, .last = k == 1});
      }
      executable.Run(Action::kOptimizer);
    }
    Outcome& outcome = outcomes[size_t(world.rank())];
    outcome.state = executable.ReadStepState();
    for (const ParameterBox& box : executable.program().OwnedParameters()) {
      for (double w : ReadFlat(executable, FlatBuffer::kMaster, box.flat)) {
        outcome.weights.push_back(w);
      }
    }
    EXPECT_TRUE(backend.Intact()) << "rank " << world.rank();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return outcomes;
}

TEST(ZeroFullReplay, TouchesThePlannedBytesAloneAndReadsNoWindowThatIsNotFilled) {
  const auto clean = TwoSteps(/*poison=*/false), poisoned = TwoSteps(/*poison=*/true);
  for (size_t rank : {0, 1}) {
    EXPECT_EQ(poisoned[rank].state.finite, 1);
    EXPECT_EQ(poisoned[rank].state.grad_norm, clean[rank].state.grad_norm);
    EXPECT_EQ(poisoned[rank].weights, clean[rank].weights);
  }
}

}  // namespace
}  // namespace trainyard::testing
