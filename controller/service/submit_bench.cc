// How long a submit takes until it is durable, from 1 and from 16 submitters at once: in the
// process, and over loopback gRPC; and how long a pass of the scheduler takes. Times are per
// operation; p50 and p99 in microseconds are counters.

#include <benchmark/benchmark.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>

#include "common/check.h"
#include "common/files.h"
#include "common/mutex.h"
#include "controller/scheduler/scheduler.h"
#include "controller/service/server.h"
#include "security/channel.h"

namespace trainyard::controller {
namespace {

constexpr int kPerThread = 200;

// Runs `call` kPerThread times on each of n threads, and reports the spread of single calls.
template <typename Call>
void Hammer(benchmark::State& state, Call call) {
  const int threads = int(state.range(0));
  std::vector<double> microseconds;
  Mutex mutex;
  for (auto _ : state) {
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([&] {
        for (int i = 0; i < kPerThread; ++i) {
          const auto start = std::chrono::steady_clock::now();
          call();
          const std::chrono::duration<double, std::micro> took =
              std::chrono::steady_clock::now() - start;
          MutexLock lock(mutex);
          microseconds.push_back(took.count());
        }
      });
    }
    for (std::thread& thread : pool) thread.join();
  }
  std::sort(microseconds.begin(), microseconds.end());
  state.SetItemsProcessed(int64_t(microseconds.size()));
  state.counters["p50_us"] = microseconds[microseconds.size() / 2];
  state.counters["p99_us"] = microseconds[microseconds.size() * 99 / 100];
}

std::string Scratch() {
  std::string pattern = "/tmp/trainyard-bench-XXXXXX";
  CHECK(::mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

void SubmitInProcess(benchmark::State& state) {
  const std::string directory = Scratch();
  {
    const auto store = *SqliteStore::Open(directory);
    prometheus::Registry registry;
    ControllerMetrics metrics(registry);
    const auto book = *JobBook::Create(RealClock(), *store, metrics, {.live_jobs = 10'000'000});
    const auto spec = std::make_shared<const Spec>(
        Spec{std::string(300, 's'), std::string(700, 'c'), JobFacts{}});
    Hammer(state, [&] {
      std::promise<void> done;
      book->Submit("", spec, [&](const absl::StatusOr<Snapshot>& job) {
        CHECK(job.ok()) << job.status();
        done.set_value();
      });
      done.get_future().wait();
    });
    store->Close();
  }
  CHECK(RemoveTree(directory).ok());
}
BENCHMARK(SubmitInProcess)->Arg(1)->Arg(16)->UseRealTime()->Unit(benchmark::kMillisecond);

v1::JobSpec TinySpec() {
  v1::JobSpec spec;
  spec.set_name("tiny");
  spec.mutable_model()->set_preset("llama3-8b");
  spec.mutable_batch()->set_global(4);
  spec.mutable_batch()->set_micro(1);
  spec.mutable_batch()->set_sequence(32);
  spec.mutable_data()->mutable_synthetic();
  spec.mutable_optimizer()->mutable_adamw()->set_learning_rate(1e-3);
  spec.set_steps(10);
  return spec;
}

void SubmitOverTheWire(benchmark::State& state) {
  ServerOptions options;
  options.state_directory = Scratch();
  options.listen = {"127.0.0.1", 0};
  options.limits.live_jobs = 10'000'000;
  {
    const auto server = *Server::Start(options, RealClock());
    const auto stub = v1::JobService::NewStub(Dial(server->address().ToString(),
                                                   {.token = server->access().local_token()},
                                                   grpc::ChannelArguments()));
    v1::SubmitJobRequest request;
    *request.mutable_spec() = TinySpec();
    Hammer(state, [&] {
      grpc::ClientContext context;
      v1::SubmitJobResponse response;
      const grpc::Status status = stub->SubmitJob(&context, request, &response);
      CHECK(status.ok()) << status.error_message();
    });
  }
  CHECK(RemoveTree(options.state_directory).ok());
}
BENCHMARK(SubmitOverTheWire)->Arg(1)->Arg(16)->UseRealTime()->Unit(benchmark::kMillisecond);

// A cluster of 8-device machines, half of it taken, and a queue of gangs of 1 to 16 ranks.
void SchedulingPass(benchmark::State& state) {
  const uint32_t machines = uint32_t(state.range(0)), queued = uint32_t(state.range(1));
  std::vector<DevicePool> pools;
  for (uint32_t i = 0; i < machines; ++i) {
    DevicePool pool{
        .worker_id = "w" + std::to_string(i), .kind = DeviceKind::kCuda, .total = 8, .free = {}};
    for (uint32_t d = i % 2 * 8; d < 8; ++d) pool.free.push_back(d);
    pools.push_back(pool);
  }
  std::vector<WaitingJob> jobs;
  for (uint32_t i = 0; i < queued; ++i) {
    jobs.push_back({.id = "j" + std::to_string(i),
                    .priority = 0,
                    .number = i,
                    .ranks = 1u << i % 5,
                    .tensor = 1,
                    .cpu_only = false});
  }
  for (auto _ : state) benchmark::DoNotOptimize(Schedule(jobs, pools));
}
BENCHMARK(SchedulingPass)->Args({10, 100})->Args({1000, 10000})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace trainyard::controller
