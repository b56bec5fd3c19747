// Proves the passes: buckets cover every gradient once and stand after its last writer; the flat
// layout keeps blocks together; dead instances go; initial values do not depend on the mesh.
#include "models/program/passes/passes.h"

#include <map>

#include "gtest/gtest.h"
#include "models/program/ops/ops.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

Program Record(const ModelConfig& config, size_t bucket_bytes) {
  return RecordTraining(*CreateModel(config), {.record = {.sequence = 4, .mesh = {.data = 2}},
                                               .bucket_bytes = bucket_bytes});
}

// "flat=OFFSET+ELEMENTS ..." of an instance on a flat buffer.
FlatRange RangeOf(const Instance& instance) {
  FlatRange range;
  const int fields = std::sscanf(instance.op->attributes().c_str(), "flat=%ld+%ld", &range.offset,
                                 &range.elements);
  CHECK(fields == 2) << instance.op->attributes();
  return range;
}

TEST(BucketsTest, EveryGradientIsReducedOnceAfterItsLastWriter) {
  for (const ModelConfig& config : {TinyLlama(), TinyLlama(/*tied=*/true), TinyGpt3()}) {
    const Program program = Record(config, 4096);
    std::vector<int> reduced(size_t(program.flat_elements));
    int buckets = 0;
    for (size_t i = 0; i < program.instances.size(); ++i) {
      const Instance& instance = program.instances[i];
      for (Value output : instance.outputs) {
        if (program.info(output).kind != ValueKind::kParameterGradient) continue;
        const FlatRange flat = program.storage(output).flat;
        EXPECT_EQ(reduced[size_t(flat.offset)], 0)
            << program.info(output) << " is written too late";
      }
      if (instance.stream != Stream::kCommunication) continue;
      EXPECT_EQ(instance.when, When::kLastMicroBatch);
      ++buckets;
      const FlatRange range = RangeOf(instance);
      for (int64_t e = range.offset; e < range.end(); ++e) ++reduced[size_t(e)];
    }
    EXPECT_GT(buckets, 2);
    for (int times : reduced) ASSERT_EQ(times, 1);
  }
}

// The first bucket is ready while most of the backward pass is still to come.
TEST(BucketsTest, TheFirstBucketOverlapsTheBackwardPass) {
  const Program program = Record(TinyLlama(), 1024);
  size_t first_bucket = 0, last_backward = 0, first_backward = 0;
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const Instance& instance = program.instances[i];
    const bool backward =
        instance.list == List::kBackwardInput || instance.list == List::kBackwardWeight;
    if (!backward) continue;
    if (first_backward == 0) first_backward = i;
    if (instance.stream == Stream::kCommunication) {
      if (first_bucket == 0) first_bucket = i;
    } else {
      last_backward = i;
    }
  }
  EXPECT_LT(first_bucket - first_backward, (last_backward - first_backward) / 4);
}

// There would be nothing to overlap.
TEST(BucketsTest, ASmallModelIsNotOneBucket) {
  ModelConfig config = TinyLlama();
  AsDecoder(config).hidden = 256, AsDecoder(config).ffn = 768, AsDecoder(config).layers = 6;
  const Program program = Record(config, 32 << 20);
  EXPECT_GE(program.buckets.size(), 6u);
  EXPECT_LE(program.buckets.size(), 16u);
}

// The last stage of two. Its head is tied to the embedding of the first.
Program RecordLastStage(const ModelConfig& config) {
  const int layers = int(AsDecoder(config).layers);
  return RecordTraining(*CreateModel(config),
                        {.record = {.sequence = 4,
                                    .mesh = {.data = 2, .pipeline = 2, .rank = 3},
                                    .cuts = {layers / 2 + 1},
                                    .stages = {0, 1}},
                         .bucket_bytes = 1024,
                         .zero = Zero::kOptimizer});
}

// Updated copies are gathered beside the next work. A step and a validation both await each bucket
// before they read it.
TEST(BucketsTest, UpdatedCopiesAreAwaitedBeforeTheyAreRead) {
  const TrainingOptions two_ranks{.record = {.sequence = 4, .mesh = {.data = 2}},
                                  .bucket_bytes = 1024,
                                  .zero = Zero::kOptimizer};
  for (const Program& program : {RecordTraining(*CreateModel(TinyLlama()), two_ranks),
                                 RecordTraining(*CreateModel(TinyLlama(/*tied=*/true)), two_ranks),
                                 RecordTraining(*CreateModel(TinyGpt3()), two_ranks),
                                 RecordLastStage(TinyLlama(/*tied=*/true))}) {
    std::vector<std::pair<FlatRange, int>> gathers;  // And the event that says it is done.
    for (const Instance& instance : program.instances) {
      if (instance.list != List::kOptimizer || instance.stream == Stream::kCompute) continue;
      ASSERT_EQ(instance.op->name(), "gather_parameters");
      EXPECT_EQ(instance.signals, kWindowEvents + int(gathers.size())) << "not in order";
      gathers.emplace_back(RangeOf(instance), instance.signals);
    }
    EXPECT_EQ(gathers.size(), program.buckets.size());
    for (const bool validation : {false, true}) {
      int awaited = Instance::kNoEvent;  // The latest so far; all before it are done by then.
      for (const Instance& instance : program.instances) {
        if (instance.list != List::kForward && !(IsBackward(instance.list) && !validation))
          continue;
        if (instance.when == When::kValidation && !validation) continue;
        for (int event : instance.awaits) awaited = std::max(awaited, event);
        for (Value input : instance.inputs) {
          if (program.info(input).kind != ValueKind::kParameter) continue;
          const FlatRange& read = program.storage(input).flat;
          for (const auto& [range, event] : gathers) {
            EXPECT_TRUE(range.Intersect(read).empty() || event <= awaited)
                << program.info(input) << ", validation " << validation;
          }
        }
      }
    }
  }
}

TEST(BucketsTest, OneRankReducesNothing) {
  const Program program = RecordTraining(*CreateModel(TinyLlama()), {.record = {.sequence = 4}});
  for (const Instance& instance : program.instances) {
    EXPECT_EQ(instance.stream, Stream::kCompute) << instance.op->name();
  }
}

// The counts that move a balancing bias are summed as they are, whatever buckets are rounded to.
TEST(BucketsTest, CountsOfExpertsAreNotRounded) {
  ModelConfig config = TinyMoe();
  AsDecoder(config).moe->expert_bias = true;
  RecordOptions options{.precision = Precision::F32(), .sequence = 4, .mesh = {.data = 2}};
  options.precision.reduced = DType::kBF16;
  for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kFull}) {
    const Program program = RecordTraining(*CreateModel(config), {.record = options, .zero = zero});
    int biases = 0;
    for (const ParameterBox& box : program.Parameters()) {
      if (!box.state) continue;
      ++biases;
      for (const Bucket& bucket : program.buckets) {
        if (bucket.flat.Intersect(box.flat).empty()) continue;
        EXPECT_EQ(bucket.reduce_axes, AxisSet()) << box.name;
      }
      const bool summed = std::any_of(program.instances.begin(), program.instances.end(),
                                      [&](const Instance& instance) {
                                        return instance.op->name() == "reduce_gradients" &&
                                               instance.op->group() == AxisSet(Axis::kData) &&
                                               RangeOf(instance).Intersect(box.flat) == box.flat;
                                      });
      EXPECT_TRUE(summed) << box.name;
    }
    EXPECT_EQ(biases, AsDecoder(config).layers);
  }
}

// Every element has one owner, and owners have equal shares of each bucket.
TEST(LayoutTest, ShardsTileTheirBuckets) {
  std::vector<int> owners;
  for (int rank = 0; rank < 3; ++rank) {
    const Program program = RecordTraining(
        *CreateModel(TinyGpt3()), {.record = {.sequence = 4, .mesh = {.data = 3, .rank = rank}},
                                   .bucket_bytes = 4096,
                                   .zero = Zero::kOptimizer});
    owners.resize(size_t(program.flat_elements));
    ASSERT_GT(program.buckets.size(), 2u);
    int64_t end = 0, shard_end = 0;
    for (const Bucket& bucket : program.buckets) {
      EXPECT_EQ(bucket.flat.offset, end);
      EXPECT_EQ(bucket.shard.offset, shard_end);
      EXPECT_EQ(bucket.shard.elements * 3, bucket.flat.elements);
      EXPECT_EQ(bucket.own, bucket.own.Intersect(bucket.flat));
      for (int64_t e = bucket.own.offset; e < bucket.own.end(); ++e) ++owners[size_t(e)];
      end = bucket.flat.end();
      shard_end = bucket.shard.end();
    }
    EXPECT_EQ(end, program.flat_elements);
    EXPECT_EQ(shard_end, program.shard_elements);
  }
  for (int count : owners) ASSERT_EQ(count, 1);
}

TEST(ClipTest, PartOfABoxIsBoxesInOrder) {
  const ParameterBox box{.name = "w",
                         .global_shape = {9, 4, 5},
                         .offset = {3, 0, 0},
                         .shape = {3, 4, 5},
                         .flat = {.offset = 100, .elements = 60}};
  const std::vector<ParameterBox> parts = Clip(box, {.offset = 107, .elements = 38});
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].offset, Shape({3, 1, 2}));  // The rest of a row,
  EXPECT_EQ(parts[0].shape, Shape({1, 1, 3}));
  EXPECT_EQ(parts[1].shape, Shape({1, 2, 5}));   // of a matrix,
  EXPECT_EQ(parts[2].offset, Shape({4, 0, 0}));  // a whole matrix,
  EXPECT_EQ(parts[2].shape, Shape({1, 4, 5}));
  EXPECT_EQ(parts[3].offset, Shape({5, 0, 0}));  // and one row of the next.
  EXPECT_EQ(parts[3].shape, Shape({1, 1, 5}));
  int64_t end = 107;
  for (const ParameterBox& part : parts) {
    EXPECT_EQ(part.flat.offset, end);
    EXPECT_EQ(part.flat.elements, part.shape.elements());
    end = part.flat.end();
  }
  EXPECT_EQ(end, 145);
  EXPECT_TRUE(Clip(box, {.offset = 160, .elements = 9}).empty());
}

TEST(LayoutTest, BlocksAreContiguousAndDecayComesFirst) {
  const Program program = Record(TinyGpt3(), 4096);
  std::pair<int, bool> before{0, false};
  int64_t end = 0;
  for (const ParameterStorage& storage : program.storages) {
    const std::pair<int, bool> here{storage.block, !storage.decay};
    EXPECT_LE(before, here);
    EXPECT_EQ(storage.flat.offset, (end + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment);
    before = here;
    end = storage.flat.end();
  }
  for (const ParameterBox& box : program.Parameters()) {
    const bool vector = box.shape.rank() == 1;
    EXPECT_EQ(box.decay, !vector) << box.name;
  }
}

// Two calls a block at most, whatever the number of parameters; together they cover everything.
TEST(OptimizerTest, RangesOfEqualDecayCoverAllParameters) {
  const Program program = Record(TinyGpt3(), 4096);
  int64_t end = 0;
  int calls = 0;
  for (const Instance& instance : program.instances) {
    if (instance.op->name() != "adamw") continue;
    const FlatRange range = RangeOf(instance);
    EXPECT_EQ(range.offset, end);
    end = range.end();
    ++calls;
  }
  EXPECT_EQ(end, program.flat_elements);
  EXPECT_LE(calls, 2 * program.num_blocks);
}

TEST(DeadTest, WhatNobodyReadsIsRemoved) {
  Recorder recorder(Precision::F32(), {}, /*training=*/false);
  const Value x = recorder.Input("x", {4, 8}, DType::kF32, {});
  const Value kept = ops::Gelu(recorder, x);
  ops::Gelu(recorder, ops::Add(recorder, kept, x));  // A chain without a reader.
  recorder.KeepOutput("y", kept);
  RemoveDead(recorder.mutable_program());
  ASSERT_EQ(recorder.program().instances.size(), 1u);
  EXPECT_EQ(recorder.program().instances[0].outputs[0], kept);
}

// The same parameters declared on one rank and on each of two tensor ranks, divided by rows, by
// sections of rows and by columns: every rank's boxes hold the global tensor's values.
TEST(InitializationTest, ValuesDoNotDependOnTheMesh) {
  const auto boxes_on = [](const Mesh& mesh) {
    Recorder recorder(Precision::F32(), mesh, /*training=*/false);
    const auto declare = [&](const std::string& name, Shard shard) {
      const Value w = recorder.Parameter({.name = name,
                                          .shape = {12, 8},
                                          .shard = shard,
                                          .init = Init::Normal(0.02),
                                          .decay = true});
      const int64_t width = recorder.info(w).shape[1];
      const Value x = recorder.Input("x of " + name, {3, width}, DType::kF32, {});
      recorder.KeepOutput("y of " + name, ops::Linear(recorder, x, w));
    };
    declare("rows", Shard::Rows(Axis::kTensor));
    declare("sections", Shard::Rows(Axis::kTensor, {2, 6, 4}));
    declare("columns", Shard::Columns(Axis::kTensor));
    LayOutParameters(recorder.mutable_program());
    RecordInitialization(recorder);
    const auto executable = Bind(std::move(recorder).Finish(), /*seed=*/42);
    std::map<std::string, std::map<int64_t, double>> values;  // By name and global index.
    for (const ParameterBox& box : executable->program().Parameters()) {
      const auto local = ReadFlat(*executable, FlatBuffer::kMaster, box.flat);
      for (size_t i = 0; i < local.size(); ++i) {
        const int64_t row = box.offset[0] + int64_t(i) / box.shape[1];
        const int64_t column = box.offset[1] + int64_t(i) % box.shape[1];
        values[box.name][row * box.global_shape[1] + column] = local[i];
      }
    }
    return values;
  };
  const auto want = boxes_on({});
  auto got = boxes_on({.tensor = 2, .rank = 0});
  for (auto& [name, values] : boxes_on({.tensor = 2, .rank = 1})) {
    for (const auto& [index, value] : values) EXPECT_TRUE(got[name].emplace(index, value).second);
  }
  EXPECT_EQ(got, want);
}

// Four parts of a block each. The first and the last use one weight, the two between another one.
Program FourParts(int stages, int rank) {
  Recorder recorder(Precision::F32(), {.pipeline = stages, .rank = rank}, /*training=*/true);
  recorder.mutable_program().num_blocks = 4;
  Value x = recorder.Input("x", {3, 8}, DType::kF32, {});
  for (const char* name : {"outer", "inner", "inner", "outer"}) {
    if (recorder.program().instances.size() > 0) x = recorder.Cut(x).only();
    recorder.set_block(int(recorder.program().instances.size()));
    const ParameterSpec spec = {.name = name, .shape = {8, 8}, .shard = {}, .decay = true};
    x = ops::Linear(recorder, x, recorder.Parameter(spec));
  }
  Program& program = recorder.mutable_program();
  program.chunks.back().last_block = 3;
  return program;
}

TEST(KeepStageTest, KeepsThePartsPlacedThereAndNotesWhichStagesShareAWeight) {
  const auto kept = [](int stages, int rank, const std::vector<int>& placed) {
    Program program = FourParts(stages, rank);
    KeepStage(program, placed);
    return program;
  };
  const Program last = kept(2, 1, {0, 1, 1, 0});  // A V: each weight is on one stage.
  EXPECT_EQ(last.chunks.size(), 2u);
  EXPECT_EQ(last.chunks[0].first_block, 1);
  EXPECT_EQ(last.chunks[1].last_block, 2);
  ASSERT_EQ(last.storages.size(), 1u);
  EXPECT_EQ(last.storages[0].parameters.front().name, "inner");
  EXPECT_FALSE(last.storages[0].tied);
  EXPECT_TRUE(last.mesh.sharing_stages.empty());
  const Program middle = kept(3, 1, {0, 1, 1, 2});
  EXPECT_FALSE(middle.storages[0].tied);
  EXPECT_EQ(middle.mesh.sharing_stages, (std::vector<int>{0, 2}));
  EXPECT_TRUE(kept(3, 2, {0, 1, 1, 2}).storages[0].tied);
}

TEST(KeepStageDeathTest, APlacementThatCannotBeIsRefused) {
  const auto keep = [](int rank, const std::vector<int>& placed) {
    Program program = FourParts(4, rank);
    KeepStage(program, placed);
  };
  EXPECT_DEATH(keep(0, {0, 1, 2}), "4 parts of a model, 3 of them placed");
  EXPECT_DEATH(keep(3, {0, 1, 1, 2}), "stage 3 holds no part");
  EXPECT_DEATH(keep(0, {0, 1, 2, 3}), "inner is shared by other stages than another tied weight");
}

}  // namespace
}  // namespace trainyard::testing
