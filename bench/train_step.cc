// One training step on one rank, and where its time goes: tokens/s, MFU against the matrix rate
// found in the same run, time by op against the rate that its products reach, memory planned and
// touched. Seconds are those of a clock on the wall, with whatever the host takes in between.
//
// Each step prints its loss and gradient norm; one that is not finite is an error. Its tokens are
// those of its number, so that two runs of a case, on any device, have the same steps. A profiler
// that watches sees the last three steps alone.
//
//   build/bench/train_step --case byte --precision bf16 --threads 2 --steps 20
//   build/bench/train_step --case llama3.2-1b --sequence 4096 --micro 2 --device cuda

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/exit_status.h"
#include "bench/step_case.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "kernels/collective/local.h"
#include "kernels/cuda/load.h"
#include "kernels/device/narrow.h"
#include "kernels/rates/matrix_rate.h"
#include "kernels/rates/memory_rate.h"
#include "models/arch/flops.h"
#include "models/arch/registry.h"
#include "models/program/op.h"
#include "models/program/timeline.h"
#include "train/config/frozen.h"
#include "train/config/precision.h"
#include "train/step/rank_engine.h"

namespace trainyard {
namespace {

constexpr int kWarmUp = 3;  // Steps.

constexpr int kTraced = 3;  // Steps, whose ops are timed one by one.

struct Options {
  bench::StepCase step;
  int threads = 2;
  int steps = 20;
  std::string device = "cpu";
  bool eager = false;
  bool without_rates = false;
};

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0, resident = 0;
  statm >> total >> resident;
  return resident * double(sysconf(_SC_PAGESIZE));
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct OpTime {
  int64_t calls = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
};

// Seconds, FLOPs and bytes of a step by op; `spans` are those of `steps` of them.
std::map<std::string, OpTime> ByOp(const Program& program, const std::vector<Span>& spans,
                                   int64_t micro_batches, int steps) {
  std::map<std::string, OpTime> ops;
  for (const Span& span : spans) {
    OpTime& op = ops[std::string(span.name)];
    op.seconds += double(span.end_ns - span.begin_ns) * 1e-9 / steps;
    ++op.calls;
  }
  for (auto& [name, op] : ops) op.calls /= steps;
  for (const Instance& instance : program.instances) {
    if (instance.list < List::kForward || instance.list == List::kGather) continue;
    if (instance.when == When::kValidation) continue;
    const int64_t times = TimesInStep(instance, micro_batches);
    const Cost cost = instance.op->CostOf(program, instance);
    OpTime& op = ops[std::string(instance.op->name())];
    op.flops += cost.flops * double(times);
    op.bytes += cost.bytes * double(times);
  }
  return ops;
}

// What the machine reaches: products per second of the step's dtype, bytes of memory per second. 0:
// not measured.
struct Rates {
  double flops, bytes;
};

// An op's bound is what its products take at the matrix rate, or its bytes at the memory rate
// (those that stay in a cache may be faster).
void PrintOps(const std::map<std::string, OpTime>& ops, double step, const Rates& rates) {
  std::vector<std::pair<std::string, OpTime>> sorted(ops.begin(), ops.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double sum = 0;
  std::cout << absl::StrFormat("%-28s %6s %9s %7s %9s %8s %9s\n", "op", "calls", "ms", "share",
                               "GFLOP/s", "GB/s", "of bound");
  for (const auto& [name, op] : sorted) {
    sum += op.seconds;
    if (op.calls == 0) continue;
    const double bound = op.flops > 0 ? op.flops / rates.flops : op.bytes / rates.bytes;
    std::cout << absl::StrFormat(
        "%-28s %6d %9.3f %6.1f%% %9s %8.1f %9s\n", name, op.calls, op.seconds * 1e3,
        100 * op.seconds / step,
        op.flops > 0 ? absl::StrFormat("%.0f", op.flops / op.seconds * 1e-9) : "",
        op.bytes / op.seconds * 1e-9,
        rates.flops > 0 ? absl::StrFormat("%.0f%%", 100 * bound / op.seconds) : "");
  }
  std::cout << absl::StrFormat("%-28s %6s %9.3f %6.1f%%\n", "outside of ops", "",
                               (step - sum) * 1e3, 100 * (step - sum) / step);
}

struct Measured {
  std::vector<double> seconds;  // Of steps.
  double touched = 0;           // Bytes in use more than before the engine was made.
  double resident = 0;          // Of the process, or of the GPU (Backend::MemoryInUse).
  Rates rates = {};
  double flops = 0;  // Of a step.
  double tokens = 0;
};

void Print(const Options& options, const Measured& m, const MemoryPlan& plan) {
  const double median = Median(m.seconds);
  const auto [least, most] = std::minmax_element(m.seconds.begin(), m.seconds.end());
  std::cout << absl::StrFormat(
      "%s %s, %d threads: step median %.2f ms of %d (%.2f to %.2f), %.0f tokens/s\n",
      options.step.model, options.step.precision, options.threads, median * 1e3, options.steps,
      *least * 1e3, *most * 1e3, m.tokens / median);
  std::cout << "steps, ms:";
  for (const double seconds : m.seconds) std::cout << absl::StrFormat(" %.2f", seconds * 1e3);
  std::cout << '\n';
  if (options.without_rates) {
    std::cout << absl::StrFormat("model %.2f GFLOP a step\n", m.flops * 1e-9);
  } else {
    std::cout << absl::StrFormat(
        "matrix rate %.1f GFLOP/s, memory rate %.1f GB/s, model %.2f GFLOP a step: MFU %.1f%%\n",
        m.rates.flops * 1e-9, m.rates.bytes * 1e-9, m.flops * 1e-9,
        100 * Mfu(m.flops, median, m.rates.flops));
  }
  std::cout << absl::StrFormat(
      "memory: %s; touched %s more than before, resident %s above the plan\n", plan.Summary(),
      FormatBytes(m.touched), FormatBytes(m.resident - double(plan.total_bytes())));
}

absl::StatusOr<const Backend*> BackendOf(const Options& options, PrecisionName precision) {
  if (options.device == "cpu") return &CpuBackend();
  if (!RowOf(precision).RunsOn(DeviceKind::kCuda)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--precision ", options.step.precision, ": a GPU has no such products"));
  }
  ASSIGN_OR_RETURN(const CudaLibrary cuda, LoadCuda());
  return cuda.backend;
}

absl::Status Run(Options options) {
  ASSIGN_OR_RETURN(const bench::ResolvedCase resolved, bench::Resolve(options.step));
  const JobConfig& job = resolved.job;
  ASSIGN_OR_RETURN(const Backend* const chosen, BackendOf(options, job.precision));
  const Backend& backend = *chosen;
  const ModelConfig& model = resolved.model;
  const DType dtype = RowOf(job.precision).formats.multiplied();
  options.without_rates |= IsNarrow(dtype);  // No device's rate is known in 8 bits.
  const auto rate = [&] {
    if (options.without_rates) return 0.0;
    return *MeasureMatrixRate(backend, dtype, options.threads, absl::Seconds(1));
  };
  Measured m;
  m.rates.flops = rate();
  if (!options.without_rates) m.rates.bytes = *MeasureMemoryRate(backend, options.threads);
  m.tokens = double(job.batch.global * job.batch.sequence);
  m.flops = TrainedFlopsPerToken(job, model) * m.tokens;
  const auto in_use = [&] {
    return backend.device() == DeviceKind::kCpu ? ResidentBytes() : double(backend.MemoryInUse());
  };
  const double before = in_use();
  const LocalWorld world(1);
  ASSIGN_OR_RETURN(const auto engine, RankEngine::Create(job, model, {.threads = options.threads},
                                                         backend, world.world(0)));
  Executable& executable = engine->executable();
  executable.WriteStepState({.seed = 1});
  executable.Run(Action::kInit);
  executable.Run(Action::kPrepare);
  int steps = 0;
  const auto step = [&]() -> absl::StatusOr<double> {
    const StepBatch batch =
        bench::BatchOf(job, *CreateModel(model), ++steps, options.step.documents);
    const StepState state = InitialState(
        {.step = steps, .learning_rate = 1e-4, .clip_norm = 1, .tokens = int64_t(m.tokens)});
    const absl::Duration begin = RealClock().Monotonic();
    const StepState after = engine->runner().Step(state, batch, [] {}).state;
    const double seconds = absl::ToDoubleSeconds(RealClock().Monotonic() - begin);
    std::cout << absl::StrFormat("step %d: loss %.6f, gradient norm %.6f\n", steps, after.loss,
                                 after.grad_norm);
    if (!std::isfinite(after.loss) || !std::isfinite(after.grad_norm)) {
      return absl::InternalError(absl::StrCat("step ", steps, " is not finite"));
    }
    return seconds;
  };
  Timeline eager, timeline;
  if (options.eager) executable.set_timeline(&eager);
  for (int i = 0; i < kWarmUp; ++i) RETURN_IF_ERROR(step().status());
  m.resident = in_use();
  m.touched = m.resident - before;
  for (int i = 0; i < options.steps; ++i) {
    ASSIGN_OR_RETURN(const double seconds, step());
    m.seconds.push_back(seconds);
  }
  m.rates.flops = std::max(m.rates.flops, rate());  // A busy machine gives less, never more.
  executable.set_timeline(&timeline);
  backend.StartProfiler().IgnoreError();  // Nobody watches.
  double traced = 0;
  for (int i = 0; i < kTraced; ++i) {
    ASSIGN_OR_RETURN(const double seconds, step());
    traced += seconds / kTraced;
  }
  executable.set_timeline(nullptr);
  backend.StopProfiler();
  Print(options, m, executable.plan());
  PrintOps(
      ByOp(executable.program(), timeline.spans(Track::kCompute), options.step.accumulate, kTraced),
      traced, m.rates);
  return absl::OkStatus();
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  std::cout << std::unitbuf;  // Whatever ends the program, what is known has been said.
  trainyard::Options options;
  CLI::App app("One training step, and where its time goes");
  trainyard::bench::AddOptions(app, options.step);
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
  app.add_option("--steps", options.steps, "That are timed")->check(CLI::Range(1, 100000));
  app.add_flag("--eager", options.eager,
               "No graphs: each op is given to the device, and timed, by itself");
  app.add_flag("--without-rates", options.without_rates,
               "Do not measure the rates of products and of memory, which takes 2 s");
  CLI11_PARSE(app, argc, argv);
  return trainyard::bench::ExitStatus(trainyard::Run(options));
}
