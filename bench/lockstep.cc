// A training step on a GPU beside the CPU, op by op (side_by_side.h): is each op right at the
// shapes of a real model, and how long does it take? One layer has all shapes.
//
//   build/bench/lockstep --case llama3.2-1b --layers 1 --sequence 4096 --device cuda --gpu h200
//
// Exit status 1 where an op is further apart than rounding explains.

#include <CLI/CLI.hpp>
#include <iostream>
#include <thread>

#include "absl/strings/str_format.h"
#include "bench/exit_status.h"
#include "bench/gpu_model.h"
#include "bench/side_by_side.h"
#include "bench/step_case.h"
#include "common/status_macros.h"
#include "kernels/cuda/load.h"
#include "models/arch/registry.h"
#include "models/program/op.h"
#include "train/config/precision.h"

namespace trainyard::bench {
namespace {

// So that what AdamW changes is more than bf16 rounds away.
constexpr double kLearningRate = 1e-2;

struct Options {
  StepCase step = {.layers = 1};
  std::string device = "cuda", gpu = "h200";
  int threads = int(std::thread::hardware_concurrency());
  double timing = SideBySideOptions::kTiming;
};

absl::StatusOr<const Backend*> BackendOf(const std::string& device) {
  if (device == "cpu") return &CpuBackend();
  ASSIGN_OR_RETURN(const CudaLibrary cuda, LoadCuda());
  return cuda.backend;
}

absl::Status Run(const Options& options) {
  ASSIGN_OR_RETURN(const GpuRates gpu, RatesOf(options.gpu));
  ASSIGN_OR_RETURN(const ResolvedCase resolved, Resolve(options.step));
  const auto& [job, model] = resolved;
  const DeviceKind kind = options.device == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda;
  ASSIGN_OR_RETURN(const RankPlan plan, PlanRank(job, model, 0, kind));
  // After the plan: a case that is wrong fails on a machine without a GPU, too
  // (tests/gpu_check/rehearsal_test.py).
  ASSIGN_OR_RETURN(const Backend* const tested, BackendOf(options.device));
  const int64_t tokens = job.batch.micro * job.batch.sequence;
  const StepState state = InitialState(
      {.step = 1, .learning_rate = kLearningRate, .clip_norm = 1, .tokens = tokens, .seed = 1});
  const StepBatch batch = BatchOf(job, *CreateModel(model), 1, options.step.documents);
  int failures = 0;
  std::cout << absl::StrFormat("%-30s %8s %10s %10s  %s\n", "op", "apart", "us", "predicted",
                               "shapes");
  const auto begins = [](const Instance& instance) {
    std::cout << absl::StrCat("at ", instance.op->name(), " of block ", instance.block, "\n");
  };
  const auto ended = [&](const ComparedOp& op) {
    const Instance& instance = *op.instance;
    const std::string name(instance.op->name());
    if (op.failed()) {
      ++failures;
      std::cout << absl::StrCat("apart: ", name, " of block ", instance.block, ": ", op.where,
                                "\n");
    }
    if (!op.seconds) return;
    // The rates are those of bf16 and 8 bits, of what runs once a step or more often.
    const bool known =
        instance.list >= List::kForward && RowOf(job.precision).formats.activation == DType::kBF16;
    const double predicted =
        known ? Predict(gpu, plan.program, instance, options.step.documents).seconds : 0;
    std::cout << absl::StrFormat("%-30s %8.4f %10.2f %10.2f  %s\n", name, op.apart,
                                 *op.seconds * 1e6, predicted * 1e6, op.shapes);
  };
  ASSIGN_OR_RETURN(const std::vector<ComparedOp> ops, RunSideBySide(plan, state, batch.front(),
                                                                    {.reference = CpuBackend(),
                                                                     .tested = *tested,
                                                                     .threads = options.threads,
                                                                     .timing = options.timing,
                                                                     .begins = begins,
                                                                     .ended = ended}));
  if (failures > 0) {
    return absl::InternalError(absl::StrCat(failures, " of ", ops.size(), " ops are apart"));
  }
  std::cout << "lockstep: " << ops.size() << " ops agree\n";
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  std::cout << std::unitbuf;  // Whatever ends the program, what is known has been said.
  Options options;
  CLI::App app("A training step on a GPU beside the CPU, op by op");
  AddOptions(app, options.step);
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--gpu", options.gpu, "Whose rates predict: h100 or h200");
  app.add_option("--threads", options.threads, "Of the CPU")->check(CLI::Range(1, 1024));
  app.add_option("--timing", options.timing, "Seconds that an op is timed for; 0: not at all")
      ->check(CLI::Range(0.0, 10.0));
  CLI11_PARSE(app, argc, argv);
  return ExitStatus(Run(options));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) { return trainyard::bench::Main(argc, argv); }
