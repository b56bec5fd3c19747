// Whether cuBLASLt's first choice is its fastest for the products of a step:
//
//   build/bench/matmul_search --case llama3.2-1b --sequence 4096 --micro 4

#include <CLI/CLI.hpp>
#include <iostream>

#include "absl/strings/str_format.h"
#include "bench/exit_status.h"
#include "bench/search_product.h"
#include "bench/step_case.h"
#include "common/status_macros.h"
#include "kernels/cuda/cuda.h"
#include "train/step/rank_engine.h"

namespace trainyard::bench {
namespace {

constexpr double kSeconds = 5e-3;  // For each algorithm.

absl::Status Run(const StepCase& step) {
  ASSIGN_OR_RETURN(const Backend* const backend, CudaBackend());
  ASSIGN_OR_RETURN(const ResolvedCase resolved, Resolve(step));
  const auto& [job, model] = resolved;
  ASSIGN_OR_RETURN(const RankPlan plan, PlanRank(job, model, 0, DeviceKind::kCuda));
  double first = 0, best = 0;
  for (const auto& [product, calls] : ProductsOf(plan.program)) {
    ASSIGN_OR_RETURN(const ProductTimes times, SearchProduct(*backend, product, kSeconds));
    std::cout << absl::StrFormat("product %s: first %.2f us, best %.2f us, number %d of %d\n",
                                 product.ToString(), times.first * 1e6, times.best * 1e6,
                                 times.number, times.of);
    first += double(calls) * times.first, best += double(calls) * times.best;
  }
  std::cout << absl::StrFormat("in a micro-batch: first %.2f ms, best %.2f ms\n", first * 1e3,
                               best * 1e3);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  std::cout << std::unitbuf;  // Whatever ends the program, what is known has been said.
  StepCase step;
  CLI::App app("The products of a step by cuBLASLt's algorithms");
  AddOptions(app, step);
  CLI11_PARSE(app, argc, argv);
  return ExitStatus(Run(step));
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) { return trainyard::bench::Main(argc, argv); }
