// Measures how long a submit takes until it is durable, from 1 and from 16 submitters at once: in
// the process, over loopback gRPC, and over TLS. Also measures a pass of the scheduler. Times are
// per operation. The counters p50 and p99 are in microseconds.

#include <benchmark/benchmark.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/mutex.h"
#include "controller/access/owner_tools.h"
#include "controller/scheduler/scheduler.h"
#include "controller/service/server.h"
#include "security/channel.h"

namespace trainyard::controller {
namespace {

constexpr int kPerThread = 200;

// On each of n threads, gets a call from `prepare(thread)`, runs it kPerThread times, and reports
// the distribution of single calls. The clock starts when every thread is prepared.
template <typename Prepare>
void Hammer(benchmark::State& state, Prepare prepare) {
  const int threads = int(state.range(0));
  std::vector<double> microseconds;
  Mutex mutex;
  for (auto _ : state) {
    std::barrier prepared(threads);
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([&, t] {
        const auto call = prepare(t);
        prepared.arrive_and_wait();
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
    const BelievedTime time(RealClock());
    const auto book = *JobBook::Create(time, *store, metrics, {.live_jobs = 10'000'000});
    const auto spec = std::make_shared<const Spec>(
        Spec{std::string(300, 's'), std::string(700, 'c'), JobFacts{}});
    const auto submit = [&] {
      std::promise<void> done;
      book->Submit("", spec, [&](const absl::StatusOr<Snapshot>& job) {
        CHECK(job.ok()) << job.status();
        done.set_value();
      });
      done.get_future().wait();
    };
    Hammer(state, [&](int) { return submit; });
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

// Each thread has a connection, opened before the clock starts, and a token from `credential`. One
// token allows 50 calls a second, and 200 at once.
void Submit(benchmark::State& state, const ServerOptions& options,
            const std::function<Credential(const Server&, int thread)>& credential) {
  const auto server = *Server::Start(options, RealClock());
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TinySpec();
  Hammer(state, [&](int thread) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = Dial(absl::StrCat("127.0.0.1:", server->address().port),
                              credential(*server, thread), arguments);
    CHECK(channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10)));
    return [&, stub = std::shared_ptr(v1::JobService::NewStub(channel))] {
      grpc::ClientContext context;
      v1::SubmitJobResponse response;
      const grpc::Status status = stub->SubmitJob(&context, request, &response);
      CHECK(status.ok()) << status.error_message();
    };
  });
}

void SubmitOverLoopback(benchmark::State& state) {
  ServerOptions options;
  options.state_directory = Scratch();
  options.listen = {"127.0.0.1", 0};
  options.limits.live_jobs = 10'000'000;
  Submit(state, options, [](const Server& server, int) {
    return Credential{.token = server.access().local_token()};
  });
  CHECK(RemoveTree(options.state_directory).ok());
}
BENCHMARK(SubmitOverLoopback)
    ->Arg(1)
    ->Arg(16)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);  // A queue of thousands slows every submit.

void SubmitOverTls(benchmark::State& state) {
  ServerOptions options;
  options.state_directory = Scratch();
  options.listen = {"0.0.0.0", 0};
  options.limits.live_jobs = 10'000'000;
  const absl::Time now = RealClock().Now();
  CHECK(InitAuthority(options.state_directory, {"127.0.0.1"}, now).ok());
  v1::CreateTokenRequest request;
  request.set_name("bench");
  request.set_role(v1::ROLE_SUBMITTER);
  std::vector<std::string> tokens;
  for (int64_t i = 0; i < state.range(0); ++i) {
    tokens.push_back(MakeToken(options.state_directory, request, now)->token);
  }
  Submit(state, options, [&](const Server& server, int thread) {
    return Credential{.token = tokens.at(size_t(thread)),
                      .authorities = server.access().authority()->certificate()};
  });
  CHECK(RemoveTree(options.state_directory).ok());
}
BENCHMARK(SubmitOverTls)
    ->Arg(1)
    ->Arg(16)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);  // A queue of thousands slows every submit.

// A cluster of machines with 8 devices, half of them taken, and a queue of gangs of 1 to 16 ranks.
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
