// main() of the kernel benchmarks. With --device=cuda they run on the GPU.

#include <cstring>
#include <iostream>

#include "bench/kernels/bench.h"
#include "kernels/cuda/load.h"

namespace trainyard::bench {
namespace {

const Backend*& Chosen() {
  static const Backend* backend = &CpuBackend();
  return backend;
}

}  // namespace

const Backend& TheBackend() { return *Chosen(); }

int Main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--device=cuda") == 0) {
    const auto cuda = LoadCuda();
    if (!cuda.ok()) {
      std::cerr << "error: " << cuda.status().message() << '\n';
      return 1;
    }
    Chosen() = cuda->backend;
    argv[1] = argv[0];
    ++argv, --argc;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace trainyard::bench

int main(int argc, char** argv) { return trainyard::bench::Main(argc, argv); }
