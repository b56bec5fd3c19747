// Proves that the compact state of an optimizer has the same bits under every layout, goes on from
// a checkpoint to the bit, and becomes state in f32 and back.

#include <gtest/gtest.h>

#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "models/arch/registry.h"
#include "tests/models/tiny.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/paths.h"
#include "train/config/resolve_model.h"
#include "train/step/rank_engine.h"
#include "train/step/snapshot.h"

namespace trainyard::testing {
namespace {

void MakeCompact(JobConfig& job) {
  job.precision = PrecisionName::kBF16;
  job.optimizer.options["state"] = double(OptimizerState::kCompact);
}

// The numbers of the global tensors, by name and kind of state.
using Numbers = std::map<std::string, std::vector<double>>;

// The number of each element of a box in the whole tensor.
std::vector<size_t> NumbersOf(const ParameterBox& box) {
  std::vector<size_t> numbers;
  for (int64_t i = 0; i < box.shape.elements(); ++i) {
    int64_t rest = i, number = 0, stride = 1;
    for (int dim = box.shape.rank() - 1; dim >= 0; --dim) {
      number += (box.offset[dim] + rest % box.shape[dim]) * stride;
      rest /= box.shape[dim];
      stride *= box.global_shape[dim];
    }
    numbers.push_back(size_t(number));
  }
  return numbers;
}

// Gradients that depend on the element and the step alone.
void WriteGradients(const Executable& executable, int64_t step) {
  const Program& program = executable.program();
  for (const ParameterBox& whole : program.Parameters()) {
    if (whole.state) continue;
    for (const Bucket& bucket : program.buckets) {
      for (const ParameterBox& box : Clip(whole, bucket.own)) {
        // Stages that share a parameter add up what they have of its gradient.
        const bool none = bucket.tied && program.mesh.coordinate(Axis::kPipeline) != 0;
        float* const gradient = executable.flat(FlatBuffer::kGradient, box.flat).as<float>();
        const std::vector<size_t> numbers = NumbersOf(box);
        for (size_t i = 0; i < numbers.size(); ++i) {
          const uint64_t stream = HashName(absl::StrCat(box.name, step).c_str());
          gradient[i] = none ? 0 : float(0.01 * Normal(3, stream, numbers[i]));
        }
      }
    }
  }
}

// Expects that ranks which hold the same element agree on it.
void Collect(const ParameterBox& box, const std::string& name, const std::vector<double>& from,
             Numbers& all) {
  std::vector<double>& to = all[name];
  to.resize(size_t(box.global_shape.elements()), NAN);
  const std::vector<size_t> numbers = NumbersOf(box);
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_TRUE(std::isnan(to[numbers[i]]) || to[numbers[i]] == from[i]) << name;
    to[numbers[i]] = from[i];
  }
}

// Three updates from the same parameters by the same gradients.
Numbers Updated(const LayoutCase& c) {
  Numbers all;
  std::mutex mutex;
  const auto errors = RunWorlds(int(c.job.devices), [&](CollectiveWorld& world) {
    const auto engine =
        RankEngine::Create(c.job, c.model, {.bucket_bytes = 2048}, CpuBackend(), world);
    CHECK(engine.ok()) << engine.status();
    Executable& executable = (*engine)->executable();
    executable.WriteStepState({.seed = 7});
    executable.Run(Action::kInit);
    executable.Run(Action::kPrepare);
    for (int64_t step = 1; step <= 3; ++step) {
      executable.WriteStepState({.step = step, .learning_rate = 0.01, .seed = 7});
      executable.WaitForCommunication();
      WriteGradients(executable, step);
      executable.Run(Action::kOptimizer);
    }
    executable.Run(Action::kJoin);
    const std::lock_guard lock(mutex);
    for (const ParameterBox& box : executable.program().OwnedParameters()) {
      if (box.state) continue;
      const auto [buffer, range] = executable.program().PlaceOfMaster(box.flat);
      Collect(box, box.name, ReadFlat(executable, buffer, range), all);
      for (const auto& [kind, state] :
           {std::pair("m", FlatBuffer::kFirstMoment), std::pair("v", FlatBuffer::kSecondMoment)}) {
        Collect(box, absl::StrCat(box.name, " ", kind), ReadFlat(executable, state, box.flat), all);
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return all;
}

class CompactLayouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(CompactLayouts, UpdatesHaveTheBitsOfOneRank) {
  const LayoutCase& c = GetParam();
  LayoutCase one = c;
  one.job.parallelism = {.zero = Zero::kNone};
  one.job.devices = 1;
  const Numbers got = Updated(c), want = Updated(one);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) EXPECT_EQ(got.at(name), values) << name;
}

std::vector<LayoutCase> CompactCases() {
  std::vector<LayoutCase> cases;
  const auto add = [&](std::vector<LayoutCase> more, size_t stride) {
    for (size_t i = 0; i < more.size(); i += stride) {
      MakeCompact(more[i].job);
      cases.push_back(std::move(more[i]));
    }
  };
  for (const char* const family : {"llama", "gpt3", "qwen3_moe", "nemotron_h"}) {
    add(AllLayouts(family, 4), 7);
  }
  add(AllLayouts("llama", 8), 29);
  add(FrozenLayouts("llama", 4, 13), 1);
  add(AdaptedLayouts("llama", 4, 13), 1);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Some, CompactLayouts, ::testing::ValuesIn(CompactCases()),
                         [](const auto& info) {
                           return absl::StrCat(info.index, "_", info.param.name());
                         });

// Of a model all of whose parameters are rounded, without the padding of its buckets.
TEST(CompactState, TakesTwelveBytesForEachParameterWithItsGradient) {
  JobConfig job = TinyJob("");
  const auto bytes_of = [&] {
    const ModelConfig model = ResolveModel(job.model).value();
    const auto plan = PlanRank(job, model, 0, DeviceKind::kCpu);
    CHECK(plan.ok()) << plan.status();
    return double(plan->memory.parameter_bytes()) / double(plan->program.flat_elements);
  };
  job.precision = PrecisionName::kBF16;
  EXPECT_EQ(bytes_of(), 18);
  MakeCompact(job);
  EXPECT_EQ(bytes_of(), 12);
}

JobConfig CompactJob(const std::string& directory) {
  JobConfig job = TinyJob(FreshDirectory(directory));
  MakeCompact(job);
  job.steps = 4;
  return job;
}

void ExpectResumesToTheBit(const JobConfig& of, int ranks) {
  JobConfig job = of;
  job.checkpoint->directory = FreshDirectory("compact_whole");
  for (const RankRun& run : RunJob(job, {.ranks = ranks})) ASSERT_TRUE(run.status.ok());
  const std::string want = NewestDigest(job.checkpoint->directory);
  job.checkpoint->directory = FreshDirectory("compact_interrupted");
  RunJob(job, {.ranks = ranks, .stop = [](int, int64_t step) { return step == 2; }});
  const auto second = RunJob(job, {.ranks = ranks, .epoch = 2, .resume = true});
  ASSERT_TRUE(second[0].status.ok()) << second[0].status;
  EXPECT_EQ(second[0].records.front().step, 3);
  EXPECT_EQ(NewestDigest(job.checkpoint->directory), want);
}

TEST(CompactState, GoesOnFromACheckpointToTheBit) {
  JobConfig job = CompactJob("compact");
  for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kFull}) {
    job.parallelism.zero = zero;
    ExpectResumesToTheBit(job, 2);
  }
  for (const PrecisionName fp8 : {PrecisionName::kFP8Delayed, PrecisionName::kFP8Rowwise}) {
    job.precision = fp8;
    ExpectResumesToTheBit(job, 1);
  }
}

// Bits of a whole job. Each rank has one micro-batch: FULL adds up several in another order.
TEST(CompactState, EveryLevelOfZeroTrainsToTheSameBits) {
  std::vector<std::string> digests;
  for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kFull}) {
    JobConfig job = CompactJob("compact_zero");
    job.batch.global = 2;
    job.optimizer.clip_norm = 0;  // The norm is added up in another order.
    job.parallelism.zero = zero;
    for (const RankRun& run : RunJob(job, {.ranks = 2})) ASSERT_TRUE(run.status.ok());
    digests.push_back(NewestDigest(job.checkpoint->directory));
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_EQ(digests[0], digests[2]);
}

// What a checkpoint holds of one kind, as doubles.
Numbers NumbersIn(const std::string& directory, TensorKind kind, DType dtype) {
  Numbers all;
  const Checkpoint checkpoint = Newest(directory);
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) {
    if (tensor.kind != kind) continue;
    EXPECT_EQ(tensor.dtype, dtype) << tensor.name << " (" << Name(kind) << ")";
    std::vector<double>& values = all[tensor.name];
    values.resize(size_t(tensor.shape.elements()));
    const std::vector<TargetBox> whole = {{.name = tensor.name,
                                           .kind = kind,
                                           .dtype = DType::kF64,
                                           .global_shape = tensor.shape,
                                           .box = WholeBox(tensor.shape),
                                           .data = values.data(),
                                           .conversion = Conversion::kWiden}};
    const absl::Status loaded = checkpoint.Load(whole);
    EXPECT_TRUE(loaded.ok()) << loaded;
  }
  EXPECT_FALSE(all.empty());
  return all;
}

// Loads a checkpoint into an engine of the job and saves it again.
std::string LoadedAndSaved(const JobConfig& job, const std::string& from, const char* to) {
  const std::string directory = FreshDirectory(to);
  CHECK(LocalStorage().MakeDirectory(directory).ok());
  const ModelConfig model = ResolveModel(job.model).value();
  const auto errors = RunWorlds(1, [&](CollectiveWorld& world) {
    const auto everyone = world.Everyone();
    const auto engine = RankEngine::Create(job, model, {}, CpuBackend(), world);
    CHECK(everyone.ok() && engine.ok()) << engine.status();
    Executable& executable = (*engine)->executable();
    executable.WriteStepState({.seed = 7});
    executable.Run(Action::kInit);
    const absl::Status loaded = LoadSnapshot(Newest(from), LoadWhat::kEverything, executable);
    CHECK(loaded.ok()) << loaded;
    executable.Run(Action::kPrepare);
    RunState state;
    state.job_id = "j-1";
    state.epoch = state.step = 1;
    state.model = model;
    const auto saved = SaveSnapshot({directory, state}, executable, **everyone, LocalStorage());
    CHECK(saved.ok()) << saved.status();
  });
  for (const std::string& error : errors) CHECK(error.empty()) << error;
  return directory;
}

TEST(CompactState, ARunGoesOnWithStateInF32AndBack) {
  using enum TensorKind;
  JobConfig compact = CompactJob("compact_of_f32"), f32 = compact;
  f32.optimizer.options["state"] = double(OptimizerState::kF32);
  f32.checkpoint->directory = FreshDirectory("f32");
  ASSERT_TRUE(RunJob(f32)[0].status.ok());
  const std::string before = f32.checkpoint->directory;
  const std::string halves = LoadedAndSaved(compact, before, "halves");
  EXPECT_EQ(NumbersIn(halves, kParameter, DType::kF32), NumbersIn(before, kParameter, DType::kF32));
  for (const TensorKind moment : {kFirstMoment, kSecondMoment}) {
    Numbers nearest = NumbersIn(before, moment, DType::kF32);
    for (auto& [name, values] : nearest) {
      for (double& value : values) value = double(float(bf16(float(value))));
    }
    EXPECT_EQ(NumbersIn(halves, moment, DType::kBF16), nearest);
  }
  const std::string wide = LoadedAndSaved(f32, halves, "wide");
  for (const TensorKind kind : {kParameter, kFirstMoment, kSecondMoment}) {
    const DType dtype = kind == kParameter ? DType::kF32 : DType::kBF16;
    EXPECT_EQ(NumbersIn(wide, kind, DType::kF32), NumbersIn(halves, kind, dtype));
  }
}

}  // namespace
}  // namespace trainyard::testing
