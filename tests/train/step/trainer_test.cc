// Proves what the training loop promises: resume exact to the bit from any step, updates that are
// not finite never committed and retried once, one rank's stop stopping all at one step with a
// checkpoint, steps that follow one another without a gap in time, and learning.

#include "train/trainer/trainer.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <thread>

#include "tests/testing/guarded_backend.h"
#include "tests/train/step/run_job.h"
#include "train/data/text.h"

namespace trainyard {
namespace {

using testing::FreshDirectory;
using ::testing::HasSubstr;
using testing::Newest;
using testing::NewestDigest;
using testing::RankRun;
using testing::RunJob;
using testing::TinyJob;

JobConfig SixSteps(const std::string& directory) {
  JobConfig job = TinyJob(directory);
  job.precision = PrecisionName::kBF16;
  job.batch.micro = 2;
  job.steps = 6;
  job.optimizer.schedule = {.shape = ScheduleShape::kCosine, .warmup_steps = 2, .min_ratio = {}};
  return job;
}

std::string UninterruptedDigest(int ranks) {
  const std::string directory = FreshDirectory("uninterrupted");
  const auto runs = RunJob(SixSteps(directory), {.ranks = ranks});
  EXPECT_TRUE(runs[0].status.ok()) << runs[0].status;
  EXPECT_EQ(runs[0].result.outcome, Outcome::kCompleted);
  return NewestDigest(directory);
}

class Resume : public ::testing::TestWithParam<int> {};

TEST_P(Resume, FromEveryStepEndsWithTheSameBits) {
  const int ranks = GetParam();
  const std::string want = UninterruptedDigest(ranks);
  for (int64_t k = 1; k < 6; ++k) {
    SCOPED_TRACE(k);
    const std::string directory = FreshDirectory("interrupted");
    const auto first =
        RunJob(SixSteps(directory),
               {.ranks = ranks, .stop = [&](int, int64_t step) { return step == k; }});
    EXPECT_EQ(first[0].result.outcome, Outcome::kStopped);
    EXPECT_EQ(first[0].result.step, k);
    const auto second = RunJob(SixSteps(directory), {.ranks = ranks, .epoch = 2, .resume = true});
    ASSERT_TRUE(second[0].status.ok()) << second[0].status;
    EXPECT_EQ(second[0].records.front().step, k + 1);
    EXPECT_EQ(second[0].result.outcome, Outcome::kCompleted);
    EXPECT_EQ(NewestDigest(directory), want);
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Resume, ::testing::Values(1, 2));

TEST(Resume, DigestDependsOnEveryStep) {
  JobConfig job = SixSteps(FreshDirectory("digest_six"));
  RunJob(job);
  const std::string six = NewestDigest(job.checkpoint->directory);
  job.checkpoint->directory = FreshDirectory("digest_seed");
  job.seed = 6;
  RunJob(job);
  EXPECT_NE(NewestDigest(job.checkpoint->directory), six);
}

void MakeNaN(StepState& state) { state.loss_scale = std::numeric_limits<double>::quiet_NaN(); }

TEST(NotFinite, OnceOnOneRankIsRetriedFromTheSameState) {
  const std::string want = UninterruptedDigest(2), directory = FreshDirectory("nan_once");
  const auto runs = RunJob(
      SixSteps(directory),
      {.ranks = 2, .before_attempt = [](int rank, int64_t step, int attempt, StepState& state) {
         if (rank == 1 && step == 3 && attempt == 0) MakeNaN(state);
       }});
  for (const RankRun& run : runs) {
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.records.size(), 6u);
    EXPECT_FALSE(run.records[2].skipped);
  }
  EXPECT_EQ(NewestDigest(directory), want);
}

TEST(NotFinite, TwiceEndsTheRunWithNothingCommitted) {
  const std::string want = UninterruptedDigest(2), directory = FreshDirectory("nan_twice");
  JobConfig job = SixSteps(directory);
  job.checkpoint->every_steps = 1;
  const auto runs =
      RunJob(job, {.ranks = 2, .before_attempt = [](int rank, int64_t step, int, StepState& state) {
                     if (rank == 0 && step == 3) MakeNaN(state);
                   }});
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.result.outcome, Outcome::kNotFinite);
    EXPECT_EQ(run.result.step, 2);
    EXPECT_TRUE(run.records.back().skipped);
    EXPECT_THAT(run.result.message, HasSubstr("step 3"));
  }
  EXPECT_EQ(Newest(directory).state().step, 2) << "a poisoned checkpoint";
  RunJob(job, {.ranks = 2, .epoch = 2, .resume = true});
  EXPECT_EQ(NewestDigest(directory), want);
}

TEST(Stop, OfOneRankStopsAllAtTheSameStepWithACheckpoint) {
  const std::string directory = FreshDirectory("stop");
  const auto runs =
      RunJob(SixSteps(directory),
             {.ranks = 2, .stop = [](int rank, int64_t step) { return rank == 1 && step == 4; }});
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.result.outcome, Outcome::kStopped);
    EXPECT_EQ(run.result.step, 4);
  }
  EXPECT_EQ(Newest(directory).state().step, 4);
  ASSERT_EQ(runs[0].checkpoints.size(), 1u);
  EXPECT_EQ(runs[0].checkpoints[0].path, Newest(directory).path());
  EXPECT_THAT(runs[1].checkpoints, ::testing::IsEmpty());
}

// A directory that vanishes under the job stands for a disk that is full.
TEST(Checkpoints, FailureInBetweenDoesNotStopTrainingButThatOfTheLastOneFailsEveryRank) {
  const std::string directory = FreshDirectory("lost_directory");
  JobConfig job = SixSteps(directory);
  job.checkpoint->every_steps = 2;
  const auto runs =
      RunJob(job, {.ranks = 2, .before_attempt = [&](int rank, int64_t step, int, StepState&) {
                     if (rank != 0 || step != 1) return;
                     ASSERT_TRUE(RemoveTree(directory).ok());
                     ASSERT_TRUE(WriteFileAtomic(directory, "in the way").ok());
                   }});
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.records.size(), 5u) << "the last step's record follows its checkpoint";
    EXPECT_FALSE(run.status.ok());
  }
  EXPECT_EQ(runs[1].status.message(), absl::StrCat("rank 0: ", runs[0].status.message()));
  EXPECT_THAT(runs[0].checkpoints, ::testing::IsEmpty());
}

// Bug it must catch: a rank killed between the two reports leaves a checkpoint that is resumed from
// and a step that nobody has heard of.
TEST(Checkpoints, AreReportedAfterTheirStep) {
  JobConfig job = TinyJob(FreshDirectory("order"));
  job.steps = 3;
  job.checkpoint->every_steps = 1;
  RankConfig rank;
  rank.job_id = "j-1", rank.epoch = 1;
  std::vector<std::string> told;
  LocalWorld world(1);
  const auto trainer = Trainer::Create(
      job, rank, CpuBackend(), world.world(0),
      {.step = [&](const StepRecord& r) { told.push_back(absl::StrCat("step ", r.step)); },
       .checkpoint =
           [&](const CheckpointRecord& r) { told.push_back(absl::StrCat("saved ", r.step)); }});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  ASSERT_TRUE((*trainer)->Run().ok());
  EXPECT_THAT(
      told, ::testing::ElementsAre("step 1", "saved 1", "step 2", "saved 2", "step 3", "saved 3"));
}

// The directory says what a successor loads: nothing has to stay for anybody else's sake.
TEST(Checkpoints, OneStaysWhereOneIsToBeKept) {
  JobConfig job = TinyJob(FreshDirectory("keep_one"));
  job.steps = 4;
  job.checkpoint->every_steps = 1;
  job.checkpoint->keep = 1;
  const auto runs = RunJob(job);
  ASSERT_EQ(runs[0].checkpoints.size(), 4u);
  const auto paths = CompleteCheckpoints(job.checkpoint->directory);
  ASSERT_TRUE(paths.ok()) << paths.status();
  EXPECT_THAT(*paths, ::testing::ElementsAre(::testing::EndsWith("/step-4")));
  std::vector<int64_t> said;
  for (const CheckpointId& c : runs[0].checkpoints.back().retained) {
    said.push_back(int64_t(c.step));
  }
  EXPECT_THAT(said, ::testing::ElementsAre(4));
}

using Instant = std::chrono::steady_clock::time_point;

Instant Now() { return std::chrono::steady_clock::now(); }
double SecondsBetween(Instant begin, Instant end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Bug it must catch: a phase that is left out.
TEST(Records, PhasesFillTheStepOnEveryRankButForTheHostsTime) {
  JobConfig job = SixSteps(FreshDirectory("phases"));
  job.batch.micro = 1;
  // By rank and step: the step's beginning, and the ends of its forward and backward passes.
  std::array<std::map<uint64_t, std::vector<Instant>>, 2> times;
  const auto note = [&](int rank, const char* phase, int64_t step) {
    if (phase == absl::string_view("step")) times[size_t(rank)][uint64_t(step)].push_back(Now());
  };
  const auto runs = RunJob(job, {.ranks = 2, .progress = note});
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    ASSERT_EQ(runs[rank].records.size(), 6u) << runs[rank].status;
    for (const StepRecord& r : runs[rank].records) {
      const std::vector<Instant>& passes = times[rank][r.step];
      ASSERT_EQ(passes.size(), 9u) << "four micro-batches";
      const PhaseSeconds& p = r.phases;
      const double sum = p.forward + p.backward + p.grad_sync + p.optimizer + p.pipeline_bubble;
      EXPECT_GE(sum, SecondsBetween(passes[1], passes.back()) - 1e-6);
      EXPECT_LE(sum, r.seconds + 1e-6);
      EXPECT_GE(p.grad_sync, 0);
      EXPECT_GT(p.forward, 0);
      EXPECT_GT(p.backward, 0);
      EXPECT_GT(p.optimizer, 0);
      EXPECT_GT(r.model_flops, 0);
      EXPECT_GT(r.memory_planned_bytes, 0);
      EXPECT_EQ(r.tokens, 96u);
      EXPECT_FALSE(r.mfu.has_value()) << "the peak is unknown";
    }
  }
}

// The pauses stand for whatever a rank does besides computing. Bugs it must catch: steps without
// the host's time between them, so that tokens/s and MFU are too high; a wait for data, a
// validation or a checkpoint that counts as part of a step, too.
TEST(Records, StepsFollowOneAnotherWithoutAGap) {
  constexpr double kPause = 0.02;
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  JobConfig job = SixSteps(FreshDirectory("no_gap"));
  job.checkpoint->every_steps = 2;
  job.validation = ValidationConfig{.every_steps = 1, .batches = 1};
  RankConfig rank;
  rank.job_id = "j-1", rank.epoch = 1;
  std::vector<StepRecord> records;
  Instant begin;
  const auto between_steps = [&](const StepRecord& record) {
    records.push_back(record);
    if (record.step < 6) pause();
  };
  const auto beside_steps = [&](const char* phase, int64_t) {
    if (phase != absl::string_view("step")) pause();
  };
  LocalWorld world(1);
  const auto trainer =
      Trainer::Create(job, rank, CpuBackend(), world.world(0),
                      {.ready = [&](const StartRecord&) { begin = Now(); },
                       .step = between_steps,
                       .stop_requested = [&] { return pause(), false; },
                       .progress = beside_steps,
                       .before_attempt = [&](int64_t, int, StepState&) { pause(); }});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  ASSERT_TRUE((*trainer)->Run().ok());
  const double wall = SecondsBetween(begin, Now());
  ASSERT_EQ(records.size(), 6u);
  double accounted = 0;
  for (const StepRecord& r : records) {
    SCOPED_TRACE(r.step);
    // Before the attempt; and after the attempt at the step before, and after its report.
    EXPECT_GE(r.phases.host(r.seconds), (r.step == 1 ? 1 : 3) * kPause);
    EXPECT_GE(r.phases.data, kPause);
    EXPECT_EQ(r.phases.checkpoint >= kPause, r.step % 2 == 0);
    ASSERT_TRUE(r.validation_loss.has_value());
    EXPECT_GE(r.phases.validation, kPause);
    accounted += r.phases.with_pauses(r.seconds);
  }
  EXPECT_LE(accounted, wall);
}

// Bug it must catch: a rank takes its own peak for everybody's, so that ranks show different MFUs.
TEST(Records, MfuIsTheShareOfThePeakOfAllRanksTogether) {
  JobConfig job = SixSteps("");
  job.checkpoint.reset();
  const auto runs =
      RunJob(job, {.ranks = 2, .peak_flops = [](int rank) { return 5e9 + rank * 3e9; }});
  for (const RankRun& run : runs) {
    ASSERT_EQ(run.records.size(), 6u) << run.status;
    for (size_t i = 0; i < run.records.size(); ++i) {
      const StepRecord& r = run.records[i];
      EXPECT_EQ(r.peak_flops, 13e9);
      EXPECT_DOUBLE_EQ(r.mfu.value(), r.model_flops / (r.seconds * 13e9));
      EXPECT_EQ(r.mfu, runs[0].records[i].mfu);
      EXPECT_DOUBLE_EQ(r.model_flops_per_second_per_device.value(),
                       r.model_flops / (r.seconds * 2));
    }
  }
}

TEST(Records, WithoutThePeakOfOneRankThereIsNoMfu) {
  JobConfig job = SixSteps("");
  job.checkpoint.reset();
  const auto one_knows = [](int rank) { return rank == 0 ? std::optional(5e9) : std::nullopt; };
  for (const RankRun& run : RunJob(job, {.ranks = 2, .peak_flops = one_knows})) {
    ASSERT_EQ(run.records.size(), 6u) << run.status;
    EXPECT_FALSE(run.records[0].mfu.has_value());
    EXPECT_FALSE(run.records[0].peak_flops.has_value());
    EXPECT_GT(run.records[0].model_flops_per_second_per_device, 0) << "which needs no peak";
  }
}

TEST(Records, MemoryIsWhatTheDeviceSaysIsInUse) {
  const testing::GuardedBackend backend;
  const auto runs = RunJob(SixSteps(FreshDirectory("memory")), {.backend = &backend});
  ASSERT_EQ(runs[0].records.size(), 6u);
  EXPECT_EQ(runs[0].records[5].memory_bytes, int64_t(backend.total()));
  EXPECT_GE(runs[0].records[5].memory_bytes, runs[0].records[5].memory_planned_bytes);
}

JobConfig TinyMoeJob(double aux_loss, bool in_turn) {
  JobConfig job = TinyJob("");
  job.checkpoint.reset();
  job.steps = 2;
  auto& [family, fields] = *job.model.architecture;
  family = "qwen3_moe", fields.erase("ffn");
  fields["moe.experts"] = 4, fields["moe.top_k"] = 2, fields["moe.expert_ffn"] = 8;
  fields["moe.aux_loss"] = aux_loss, fields["moe.fake_balanced"] = in_turn;
  return job;
}

// Experts that tokens go to in turn are evenly loaded whatever the gate says: then it is 1 for any
// coefficient, number of layers or micro-batches, on pipeline stages that have one layer each.
TEST(Records, LoadBalancingLossIsOneForEvenlyLoadedExperts) {
  JobConfig job = TinyMoeJob(0.05, true);
  const std::vector<RankRun> alone = RunJob(job);
  for (const StepRecord& r : alone[0].records) EXPECT_NEAR(*r.load_balancing_loss, 1, 1e-12);
  job.parallelism = {.tensor = 2, .pipeline = 2};
  for (const RankRun& run : RunJob(job, {.ranks = 4})) {
    ASSERT_EQ(run.records.size(), 2u) << run.status;
    for (const StepRecord& r : run.records) EXPECT_NEAR(*r.load_balancing_loss, 1, 1e-12);
  }
}

TEST(Records, LoadBalancingLossIsAboveOneForOthersAndAbsentWithoutACoefficient) {
  const RankRun once = RunJob(TinyMoeJob(0.05, false))[0], ten = RunJob(TinyMoeJob(0.5, false))[0];
  EXPECT_GT(*once.records[0].load_balancing_loss, 1.0001);
  EXPECT_LE(*once.records[0].load_balancing_loss, 2) << "experts / top_k";
  EXPECT_NEAR(*once.records[0].load_balancing_loss, *ten.records[0].load_balancing_loss, 1e-12);
  EXPECT_FALSE(RunJob(TinyMoeJob(0, false))[0].records[0].load_balancing_loss.has_value());
  EXPECT_FALSE(RunJob(TinyJob(FreshDirectory("dense")))[0].records[0].load_balancing_loss);
}

// What one step of two data ranks must say to each other; layouts_test has the rest.
// Catches counts that begin anew with no record, or are those of one group alone.
TEST(Records, CollectivesAreThoseSinceTheRecordBefore) {
  JobConfig job = SixSteps("");
  job.checkpoint.reset();
  for (const RankRun& run : RunJob(job, {.ranks = 2})) {
    const auto use = [&](size_t i, CollectiveOp op, const std::string& group) {
      for (const CollectiveUse& u : run.records[i].collectives) {
        if (u.op == Name(op) && u.group == group) return u;
      }
      return CollectiveUse();
    };
    for (size_t i = 1; i < 6; ++i) {
      SCOPED_TRACE(i);
      const CollectiveUse agreed = use(i, CollectiveOp::kAllReduceSum, "everyone");
      EXPECT_EQ(agreed.calls, 1u);
      EXPECT_EQ(agreed.bytes, 40u) << "three flags and the seconds of two ranks";
      EXPECT_GT(agreed.seconds, 0);
      const CollectiveUse scattered = use(i, CollectiveOp::kReduceScatterSum, "data");
      EXPECT_GE(scattered.calls, 1u);
      EXPECT_EQ(scattered.bytes, use(1, CollectiveOp::kReduceScatterSum, "data").bytes);
      EXPECT_EQ(use(i, CollectiveOp::kBroadcast, "everyone").calls, 0) << "at the start only";
    }
  }
}

TEST(Records, LossStartsAtThatOfAUniformGuessAndFalls) {
  JobConfig job = TinyJob(FreshDirectory("learns"));
  job.checkpoint.reset();
  job.precision = PrecisionName::kF32;
  job.batch = {.global = 16, .micro = 16, .sequence = 16};
  job.optimizer.clip_norm = 1;
  job.optimizer.options["epsilon"] = 1e-8;
  job.steps = 150;
  const auto records = RunJob(job)[0].records;
  EXPECT_NEAR(records.front().loss, std::log(32), 0.1);
  EXPECT_LT(records.back().loss, records.front().loss - 1);
}

TEST(Data, FileThatShrinksUnderTheJobEndsItByNameAndItsPeersToo) {
  const std::string corpus = FreshDirectory("shrinking.txt");
  ASSERT_TRUE(WriteFileAtomic(corpus, std::string(2000, 'x')).ok());
  JobConfig job = TinyJob(FreshDirectory("shrinks"));
  job.model.architecture->fields["vocab"] = 256;
  job.data = TextData{.path = corpus, .validation_fraction = 0};
  job.steps = 50;
  const auto runs =
      RunJob(job, {.ranks = 2, .before_attempt = [&](int, int64_t step, int, StepState&) {
                     if (step != 2) return;
                     ASSERT_EQ(::truncate(corpus.c_str(), 100), 0);
                   }});
  // Whichever rank reads beyond the end first; that the other has ended, too, is why we are here.
  const absl::Status& status = runs[runs[0].status.ok() ? 1 : 0].status;
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(corpus));
}

TEST(Loading, CheckpointOfAnotherModelIsRefusedAndNamed) {
  const std::string directory = FreshDirectory("other_model");
  RunJob(TinyJob(directory));
  JobConfig wider = TinyJob(directory);
  wider.model.architecture->fields["ffn"] = 48;
  const RankRun run = RunJob(wider, {.epoch = 2, .resume = true})[0];
  EXPECT_EQ(run.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(run.status.message()), HasSubstr("ffn"));
}

// Catches a service that believes an attempt to have resumed from what it could not use.
TEST(Loading, DamagedCheckpointIsToldWithWhatWasLoadedInstead) {
  JobConfig job = SixSteps(FreshDirectory("damaged"));
  job.checkpoint->every_steps = 2;
  ASSERT_EQ(RunJob(job)[0].start.step, 0);
  const std::string newest = Newest(job.checkpoint->directory).path();
  ASSERT_EQ(::truncate((newest + "/rank-0.bin").c_str(), 3), 0);
  const auto runs = RunJob(job, {.ranks = 2, .epoch = 2, .resume = true});
  for (const RankRun& run : runs) {
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.start.step, 4);
    EXPECT_EQ(run.records.front().step, 5);
  }
  ASSERT_EQ(runs[0].start.refused.size(), 1u);
  EXPECT_THAT(runs[0].start.refused[0], HasSubstr(newest));
}

// Changes the last element of a matrix, which with `tensor: 2` rank 1 alone reads.
void DamageWhatRankOneReads(const Checkpoint& checkpoint) {
  const StoredTensor* tensor =
      checkpoint.manifest().Find("model.layers.1.mlp.gate_proj.weight", TensorKind::kParameter);
  CHECK(tensor != nullptr && tensor->boxes.size() == 1);
  const StoredBox& box = tensor->boxes[0];
  std::fstream file(checkpoint.path() + "/" + box.file,
                    std::ios::binary | std::ios::in | std::ios::out);
  const auto at =
      std::streamoff(box.file_offset + size_t(box.box.elements() - 1) * SizeOf(tensor->dtype));
  file.seekg(at);
  const int was = file.get();
  file.seekp(at);
  file.put(char(was ^ 1));
}

// Bug it must catch: ranks of another layout read parts of boxes, which nobody checks.
TEST(Loading, DamageThatOneRankFindsIsEveryRanks) {
  JobConfig job = SixSteps(FreshDirectory("damaged_for_one"));
  job.checkpoint->every_steps = 2;
  ASSERT_EQ(RunJob(job)[0].start.step, 0);
  const Checkpoint newest = Newest(job.checkpoint->directory);
  DamageWhatRankOneReads(newest);
  job.parallelism.tensor = 2;
  JobConfig from_it = job;
  const auto runs = RunJob(job, {.ranks = 2, .epoch = 2, .resume = true});
  for (const RankRun& run : runs) {
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.start.step, 4);
  }
  ASSERT_EQ(runs[0].start.refused.size(), 1u);
  EXPECT_THAT(runs[0].start.refused[0],
              ::testing::AllOf(::testing::StartsWith("rank 1: " + newest.path()),
                               HasSubstr("model.layers.1.mlp.gate_proj.weight (parameter)")));
  EXPECT_THAT(runs[1].start.refused, ::testing::IsEmpty()) << "told by rank 0";

  from_it.checkpoint->directory = FreshDirectory("from_damaged_for_one");
  from_it.init_from = newest.path();
  for (const RankRun& run : RunJob(from_it, {.ranks = 2})) {
    EXPECT_TRUE(absl::IsDataLoss(run.status)) << run.status;
    EXPECT_THAT(std::string(run.status.message()),
                ::testing::AllOf(::testing::StartsWith("init_from: "), HasSubstr(newest.path())));
  }
  EXPECT_FALSE(Exists(from_it.checkpoint->directory)) << "nothing is claimed by what cannot start";
}

TEST(Loading, InitFromTakesTheWeightsAndStartsAtStepOne) {
  const std::string source = FreshDirectory("init_source");
  RunJob(TinyJob(source));
  JobConfig job = TinyJob(FreshDirectory("init_target"));
  job.init_from = Newest(source).path();
  job.optimizer.options["learning_rate"] = 1e-300;  // Too small to move anything.
  const RankRun run = RunJob(job)[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.records.front().step, 1);
  const auto want = testing::ReadTensors(Newest(source));
  const auto got = testing::ReadTensors(Newest(job.checkpoint->directory));
  for (const auto& [name, values] : want) {
    if (!name.ends_with("/parameter")) continue;
    EXPECT_EQ(got.at(name), values) << name;
  }
}

TEST(Loading, InitFromAJobsDirectoryTakesTheNewestGoodCheckpointOfIt) {
  JobConfig source = TinyJob(FreshDirectory("init_source_directory"));
  source.steps = 3;
  source.checkpoint->every_steps = 1;
  RunJob(source);
  const auto paths = CompleteCheckpoints(source.checkpoint->directory);
  ASSERT_EQ(paths->size(), 3u);
  std::filesystem::resize_file((*paths)[0] + "/rank-0.bin", 3);
  JobConfig job = TinyJob(FreshDirectory("init_target_directory"));
  job.init_from = source.checkpoint->directory;
  job.optimizer.options["learning_rate"] = 1e-300;  // Too small to move anything.
  const auto runs = RunJob(job, {.ranks = 2});
  const RankRun& run = runs[1];
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_EQ(runs[0].start.refused.size(), 1u);
  EXPECT_THAT(
      runs[0].start.refused[0],
      ::testing::AllOf(::testing::StartsWith("init_from: "), HasSubstr("/epoch-1/step-3/"),
                       ::testing::EndsWith("init_source_directory/epoch-1/step-2 instead")));
  EXPECT_EQ(run.records.front().step, 1);
  const auto want = testing::ReadTensors(Checkpoint::Open((*paths)[1]).value());
  const auto got = testing::ReadTensors(Newest(job.checkpoint->directory));
  for (const auto& [name, values] : want) {
    if (!name.ends_with("/parameter")) continue;
    EXPECT_EQ(got.at(name), values) << name;
  }
}

// Bug it must catch: a job that cannot start keeps its checkpoint directory from the next one.
TEST(Loading, AnInitFromThatDoesNotFitIsRefusedByFieldBeforeTheDirectoryIsClaimed) {
  JobConfig source = TinyJob(FreshDirectory("init_source_wider"));
  source.model.architecture->fields["ffn"] = 48;
  RunJob(source);
  JobConfig job = TinyJob(FreshDirectory("init_target_unclaimed"));
  for (const char* from : {"init_source_wider", "no_such_checkpoint"}) {
    job.init_from = absl::StrCat(::testing::TempDir(), "/", from);
    const auto runs = RunJob(job, {.ranks = 2});
    EXPECT_THAT(std::string(runs[0].status.message()),
                ::testing::AllOf(::testing::StartsWith("init_from: "), HasSubstr(from)));
    EXPECT_THAT(std::string(runs[1].status.message()),
                ::testing::AllOf(::testing::StartsWith("init_from: rank 0: "), HasSubstr(from)));
    EXPECT_FALSE(Exists(job.checkpoint->directory));
  }
}

// Catches a mistake in the spec that is taken for a failure of the machine, and tried again.
TEST(Loading, AFileInPlaceOfTheDirectoryIsTheUsersToMend) {
  JobConfig job = TinyJob(FreshDirectory("a_file"));
  ASSERT_TRUE(WriteFileAtomic(job.checkpoint->directory, "in the way").ok());
  for (const char* below : {"", "/runs"}) {
    job.checkpoint->directory += below;
    const RankRun run = RunJob(job)[0];
    EXPECT_EQ(run.status.code(), absl::StatusCode::kFailedPrecondition) << run.status;
    EXPECT_THAT(std::string(run.status.message()), ::testing::StartsWith("checkpoint.directory: "));
  }
}

TEST(Loading, DirectoryOfAnotherJobIsRefused) {
  const std::string directory = FreshDirectory("other_job");
  RunJob(TinyJob(directory));
  RankConfig rank;
  rank.job_id = "j-2";
  rank.epoch = 1;
  LocalWorld world(1);
  const RankRun run = testing::RunOneRank(TinyJob(directory), rank, {}, world.world(0));
  EXPECT_EQ(run.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(run.status.message()),
              ::testing::AllOf(::testing::StartsWith("checkpoint.directory: "),
                               HasSubstr("belongs to job j-1")));
}

}  // namespace
}  // namespace trainyard
