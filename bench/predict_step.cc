// The milliseconds of a training step on a GPU that nobody has here (gpu_model.h), op by op and in
// sum, with the memory that it will take.
//
//   build/bench/predict_step --case llama3.2-1b --sequence 4096 --micro 2 --gpu h200

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/exit_status.h"
#include "bench/gpu_model.h"
#include "bench/step_case.h"
#include "common/status_macros.h"
#include "kernels/device/narrow.h"
#include "models/arch/flops.h"
#include "models/program/op.h"
#include "train/config/frozen.h"
#include "train/config/precision.h"
#include "train/step/rank_engine.h"

namespace trainyard::bench {
namespace {

struct OpSum {
  int64_t calls = 0;
  double seconds = 0;
};

struct StepPrediction {
  std::map<std::string, OpSum> ops;
  std::array<double, kNumParts> parts = {};
  double seconds = 0;
};

StepPrediction PredictStep(const GpuRates& gpu, const Program& program, int64_t micro_batches,
                           int64_t documents) {
  StepPrediction step;
  for (const Instance& instance : program.instances) {
    if (instance.list < List::kForward || instance.when == When::kValidation) continue;
    const int64_t times = TimesInStep(instance, micro_batches);
    const OpPrediction op = Predict(gpu, program, instance, documents);
    OpSum& sum = step.ops[std::string(instance.op->name())];
    sum.calls += times;
    sum.seconds += double(times) * op.seconds;
    step.parts[size_t(op.part)] += double(times) * op.seconds;
  }
  step.parts[size_t(Part::kGaps)] = PredictGaps(program, micro_batches);
  for (const double seconds : step.parts) step.seconds += seconds;
  return step;
}

void PrintOps(const StepPrediction& step) {
  std::vector<std::pair<std::string, OpSum>> sorted(step.ops.begin(), step.ops.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::cout << absl::StrFormat("%-32s %6s %9s %7s\n", "op", "calls", "ms", "share");
  for (const auto& [name, op] : sorted) {
    std::cout << absl::StrFormat("%-32s %6d %9.3f %6.1f%%\n", name, op.calls, op.seconds * 1e3,
                                 100 * op.seconds / step.seconds);
  }
}

absl::Status Run(const StepCase& wanted, const std::string& gpu_name) {
  ASSIGN_OR_RETURN(const GpuRates gpu, RatesOf(gpu_name));
  ASSIGN_OR_RETURN(const ResolvedCase resolved, Resolve(wanted));
  const auto& [job, model] = resolved;
  const Precision& formats = RowOf(job.precision).formats;
  if (formats.activation != DType::kBF16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--precision ", wanted.precision, ": a GPU's rates are known for bf16 and 8 bits alone"));
  }
  const double peak = IsNarrow(formats.multiplied()) ? gpu.narrow_peak : gpu.peak;
  ASSIGN_OR_RETURN(const RankPlan rank, PlanRank(job, model, 0, DeviceKind::kCuda));
  const StepPrediction step = PredictStep(gpu, rank.program, wanted.accumulate, wanted.documents);
  PrintOps(step);
  const double tokens = double(job.batch.global * job.batch.sequence);
  JobConfig of_documents = job;
  of_documents.batch.sequence /= wanted.documents;
  const double flops = TrainedFlopsPerToken(of_documents, model) * tokens;
  for (int part = 0; part < kNumParts; ++part) {
    std::cout << absl::StrFormat("predicted %s: %.2f ms\n", Name(Part(part)),
                                 step.parts[size_t(part)] * 1e3);
  }
  std::cout << absl::StrFormat(
                   "predicted step: %.2f ms, %.0f tokens/s, MFU %.1f%% of %.0f TFLOP/s\n",
                   step.seconds * 1e3, tokens / step.seconds, 100 * Mfu(flops, step.seconds, peak),
                   peak * 1e-12)
            << "memory: " << rank.memory.Summary() << '\n';
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  StepCase step;
  std::string gpu = "h200";
  CLI::App app("A training step on a GPU, predicted");
  AddOptions(app, step);
  app.add_option("--gpu", gpu, "h100 or h200");
  CLI11_PARSE(app, argc, argv);
  return ExitStatus(Run(step, gpu));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) { return trainyard::bench::Main(argc, argv); }
