// Measures how long a reader of the page waits for the first byte. 10,000 jobs are stored, one of
// which has 200,000 steps and a full log. Each request has its own connection over loopback, as a
// browser makes it. Prints the median and the largest of 20 requests each, in milliseconds.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/http/metrics_page.h"
#include "controller/jobs/job_codec.h"
#include "controller/jobs/job_id.h"
#include "controller/service/server.h"

namespace trainyard::controller {
namespace {

constexpr uint64_t kJobs = 10'000, kLive = 200, kSteps = 200'000;
constexpr int kRequests = 20;

uint64_t NumberOf(uint64_t i) { return i * 1024; }

void Write(Store& store, WriteBatch batch) {
  std::promise<absl::Status> done;
  const Refusal refuse = store.Write(std::move(batch), OnFailure::kReport,
                                     [&](const absl::Status& status) { done.set_value(status); });
  CHECK(!refuse);
  const absl::Status status = done.get_future().get();
  CHECK(status.ok()) << status.ToString();
}

// The newest job has ended after many steps. The next ones wait, so they are in memory.
void Fill(const std::string& state, absl::Time now) {
  const auto store = *SqliteStore::Open(state);
  WriteBatch batch;
  for (uint64_t i = 1; i <= kJobs; ++i) {
    Job job;
    job.state = i < kJobs && i + kLive >= kJobs ? JobState::kQueued : JobState::kSucceeded;
    job.create_time = now;
    if (i == kJobs) job.epoch = 1, job.progress.step = job.progress.furthest_step = kSteps;
    JobFacts facts;
    facts.name = absl::StrCat("llama-sweep-", i);
    facts.name_space = i % 1000 == 0 ? "rare" : "default";
    facts.steps = kSteps;
    facts.ranks = 8;
    const std::string config = absl::StrCat("{\"validation\":{\"every_steps\":\"100\"},\"pad\":\"",
                                            std::string(900, 'x'), "\"}");
    batch.new_jobs.push_back({NumberOf(i), job.state, std::string(400, 's'), config,
                              EncodeFacts(facts), EncodeJob(job)});
  }
  for (uint64_t i = 0; i < 2'000; ++i) {
    batch.events.push_back({NumberOf(kJobs), {now, EventType::kCheckpointed, 1, "saved"}});
  }
  Write(*store, std::move(batch));
  for (uint64_t step = 1; step <= kSteps;) {
    WriteBatch steps;
    for (int i = 0; i < 20'000; ++i, ++step) {
      JobStep record;
      record.step = step;
      record.epoch = 1;
      record.loss = 2 + 1 / double(step);
      record.tokens = 4096;
      record.seconds = 0.5;
      record.phases = {0.01, 0.1, 0.2, 0.05, 0.03, 0.0, 0.0};
      record.finish_time = now;
      record.complete = true;
      if (step % 100 == 0) record.validation_loss = record.loss;
      steps.steps.push_back({NumberOf(kJobs), record});
    }
    Write(*store, std::move(steps));
  }
  WriteBatch logs;
  for (uint32_t i = 0; i < 20'000; ++i) {
    logs.logs.push_back({NumberOf(kJobs), {now, 1, i % 8, std::string(120, 'l')}});
  }
  Write(*store, std::move(logs));
  store->Close();
}

// Measures from the start of the connection to the first byte.
double FirstByteMilliseconds(int port, const std::string& request, size_t& bytes) {
  const auto start = std::chrono::steady_clock::now();
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  CHECK(::send(socket, request.data(), request.size(), 0) == ssize_t(request.size()));
  std::string answer(1 << 20, '\0');
  ssize_t got = ::recv(socket, answer.data(), 1, 0);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  CHECK(got == 1);
  bytes = 1;
  while ((got = ::recv(socket, answer.data() + bytes, answer.size() - bytes, 0)) > 0) {
    bytes += size_t(got);
  }
  CHECK(answer.starts_with("HTTP/1.1 200 ")) << answer.substr(0, 400);
  ::close(socket);
  return took.count();
}

int Main() {
  std::string scratch = "/tmp/trainyard-bench-XXXXXX";
  CHECK(::mkdtemp(scratch.data()) != nullptr);
  Fill(scratch, RealClock().Now());
  {
    ServerOptions options;
    options.state_directory = scratch;
    options.listen = {"127.0.0.1", 0};
    const auto server = *Server::Start(options, RealClock());
    const auto page = *MetricsPage::Serve(
        {"127.0.0.1", 0}, server->registry(), {},
        [&](const HttpRequest& request) { return server->site().Answer(request); });
    const std::string job = absl::StrCat("/jobs/", JobId(NumberOf(kJobs)));
    const std::string middle = absl::StrCat("/?page=", JobId(NumberOf(kJobs / 2)));
    for (const std::string& path :
         {std::string("/"), middle, std::string("/?state=live"), std::string("/?namespace=rare"),
          std::string("/?name=sweep-77"), std::string("/workers"), job, job + "?rank=7"}) {
      const std::string request =
          absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x:1\r\nCookie: trainyard-1=",
                       server->access().local_token(), "\r\n\r\n");
      std::vector<double> times;
      size_t bytes = 0;
      for (int i = 0; i < kRequests; ++i) {
        times.push_back(FirstByteMilliseconds(page->address().port, request, bytes));
      }
      std::sort(times.begin(), times.end());
      std::printf("%-28s median %6.2f ms, largest %6.2f ms, %6.1f KB\n", path.c_str(),
                  times[times.size() / 2], times.back(), double(bytes) / 1000);
    }
  }
  CHECK(RemoveTree(scratch).ok());
  return 0;
}

}  // namespace
}  // namespace trainyard::controller

int main() { return trainyard::controller::Main(); }
