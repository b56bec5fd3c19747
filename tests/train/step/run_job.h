// A tiny job, and running it with ranks that are threads.

#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "kernels/collective/staged.h"
#include "tests/testing/ranks.h"
#include "tests/train/step/tensors.h"
#include "train/checkpoint/load.h"
#include "train/data/synthetic.h"
#include "train/trainer/trainer.h"

namespace trainyard::testing {

inline JobConfig TinyJob(const std::string& checkpoint_directory) {
  JobConfig job;
  job.name = "tiny";
  job.model.architecture = {"llama",
                            {{"layers", 2},
                             {"hidden", 16},
                             {"ffn", 24},
                             {"heads", 4},
                             {"kv_heads", 2},
                             {"head_dim", 4},
                             {"vocab", 32},
                             {"max_seq", 16}}};
  job.precision = PrecisionName::kF64;
  job.batch = {.global = 8, .micro = 1, .sequence = 12};
  job.data = SyntheticData{};
  job.optimizer.options = {{"learning_rate", 1e-2}, {"epsilon", 1e-3}};
  job.optimizer.clip_norm = 0.05;  // Well below the norm: every step is clipped.
  job.steps = 2;
  job.checkpoint = CheckpointConfig{.directory = checkpoint_directory, .every_steps = 0, .keep = 3};
  job.seed = 5;
  return job;
}

// How a run differs from the plain one.
struct RunOptions {
  int ranks = 1;
  std::vector<CollectiveWorld*> worlds = {};  // By rank. Empty: those of threads, without Gloo.
  // Called on the rank's thread: what the rank uses in place of its world. Null: its world.
  std::function<std::unique_ptr<CollectiveWorld>(CollectiveWorld& world)> around = nullptr;
  const Backend* backend = &CpuBackend();
  // Of another device: what carries a rank's tensors; null: the host.
  std::function<std::unique_ptr<CollectiveWorld>(int rank)> tensors = nullptr;
  std::string job_id = "j-1";
  int64_t epoch = 1;
  bool resume = false;  // An earlier attempt has used the job's directory.
  std::function<std::vector<std::string>(int rank)> roots = nullptr;    // Null: paths lie anywhere.
  std::function<int64_t(int rank)> memory_bytes = nullptr;              // Of each device.
  std::optional<int64_t> host_memory_bytes = {};                        // Of each rank.
  std::function<std::optional<double>(int rank)> peak_flops = nullptr;  // Likewise.
  std::function<bool(int rank, int64_t finished_steps)> stop = nullptr;
  std::function<void(int rank, const char* phase, int64_t step)> progress = nullptr;
  std::function<void(int rank, int64_t step, int attempt, StepState&)> before_attempt = nullptr;
  std::function<void(int rank, Program&)> edit_program = nullptr;
  std::function<void(int rank)> ended = nullptr;  // Also where it threw.
  OpenLineEncoding open_lines = nullptr;
  OpenPrompts open_prompts = nullptr;
};

struct RankRun {
  absl::Status status;  // Of Create or Run.
  std::string thrown;   // The message of a DeviceError; empty: none.
  TrainingResult result;
  std::vector<StepRecord> records;
  std::vector<CheckpointRecord> checkpoints;
  StartRecord start;
};

// What a rank that throws has done by then is in `run`, too.
inline void RunOneRank(const JobConfig& job, const RankConfig& rank, const RunOptions& options,
                       CollectiveWorld& world, RankRun& run) {
  const int index = world.rank();
  TrainerCallbacks callbacks{
      .ready = [&](const StartRecord& record) { run.start = record; },
      .step = [&](const StepRecord& record) { run.records.push_back(record); },
      .checkpoint = [&](const CheckpointRecord& record) { run.checkpoints.push_back(record); },
      .stop_requested =
          [&] { return options.stop && options.stop(index, int64_t(run.records.size()) + 1); },
      .progress =
          [&](const char* phase, int64_t step) {
            if (options.progress) options.progress(index, phase, step);
          },
      .open_lines = options.open_lines,
      .open_prompts = options.open_prompts,
      .before_attempt =
          [&](int64_t step, int attempt, StepState& state) {
            if (options.before_attempt) options.before_attempt(index, step, attempt, state);
          },
      .edit_program =
          [&](Program& program) {
            if (options.edit_program) options.edit_program(index, program);
          }};
  const auto trainer = Trainer::Create(job, rank, *options.backend, world, std::move(callbacks));
  run.status = trainer.status();
  if (!trainer.ok()) return;
  const auto result = (*trainer)->Run();
  run.status = result.status();
  if (result.ok()) run.result = *result;
}

inline RankRun RunOneRank(const JobConfig& job, const RankConfig& rank, const RunOptions& options,
                          CollectiveWorld& world) {
  RankRun run;
  RunOneRank(job, rank, options, world, run);
  return run;
}

// One result a rank.
inline std::vector<RankRun> RunJob(JobConfig job, const RunOptions& options = {}) {
  job.devices = options.ranks;
  RankConfig rank;
  rank.job_id = options.job_id;
  rank.epoch = options.epoch;
  rank.world = options.ranks;
  rank.claimed = options.resume;
  std::vector<RankRun> runs(size_t(options.ranks));
  const auto run_rank = [&](CollectiveWorld& of_rank) {
    const std::unique_ptr<CollectiveWorld> around =
        options.around ? options.around(of_rank) : nullptr;
    CollectiveWorld& world = around ? *around : of_rank;
    RankConfig mine = rank;
    mine.rank = world.rank();
    if (options.roots) mine.roots = options.roots(world.rank());
    if (options.peak_flops) mine.peak_flops = options.peak_flops(world.rank());
    if (options.memory_bytes) mine.memory_bytes = options.memory_bytes(world.rank());
    mine.host_memory_bytes = options.host_memory_bytes;
    std::unique_ptr<CollectiveWorld> of_device;
    if (options.tensors) {
      of_device = CreateDeviceWorld(world, options.tensors(world.rank()));
    } else if (options.backend->device() != DeviceKind::kCpu) {
      of_device = CreateStagedWorld(world, *options.backend);
    }
    const struct End {
      const RunOptions& options;
      int rank;
      ~End() {
        if (options.ended) options.ended(rank);
      }
    } end{options, world.rank()};
    RunOneRank(job, mine, options, of_device ? *of_device : world, runs[size_t(world.rank())]);
  };
  const auto thrown = options.worlds.empty() ? RunWorlds(options.ranks, run_rank)
                                             : RunWorlds(options.worlds, run_rank);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].thrown = thrown[i];
  return runs;
}

inline std::string FreshDirectory(const std::string& name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  CHECK(RemoveTree(path).ok());
  return path;
}

inline Checkpoint Newest(const std::string& directory) {
  const auto paths = CompleteCheckpoints(directory);
  CHECK(paths.ok() && !paths->empty()) << directory;
  auto checkpoint = Checkpoint::Open(paths->front());
  CHECK(checkpoint.ok()) << checkpoint.status();
  return *std::move(checkpoint);
}

inline std::string NewestDigest(const std::string& directory) {
  const auto digest = Newest(directory).Digest();
  CHECK(digest.ok()) << digest.status();
  return *digest;
}

// All tensors of an f64 checkpoint, by "name/kind".
inline Tensors ReadTensors(const Checkpoint& checkpoint) {
  Tensors tensors;
  for (const StoredTensor& stored : checkpoint.manifest().tensors) {
    std::vector<double>& values = tensors[stored.name + "/" + Name(stored.kind)];
    values.resize(size_t(stored.shape.elements()));
    const TargetBox box{
        stored.name,  stored.kind, stored.dtype, stored.shape, WholeBox(stored.shape),
        values.data()};
    const absl::Status status = checkpoint.Load(std::vector<TargetBox>{box});
    CHECK(status.ok()) << status;
  }
  return tensors;
}

inline double LargestDifference(const Checkpoint& a, const Checkpoint& b) {
  return LargestDifference(ReadTensors(a), ReadTensors(b));
}

}  // namespace trainyard::testing
