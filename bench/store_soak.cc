// Kills a real controller again and again while clients submit, cancel and read jobs, and compares
// every answer with a model (goal R1). Or measures how long a controller with many jobs takes from
// its start to the first answered call after a kill (goal R3). Run by scripts/store_soak.sh.
//
// The model of each job: it exists once it was acknowledged. All submits with its request_id return
// it. It is QUEUED until a cancel begins, and CANCELLED once a cancel was acknowledged or seen.

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/files.h"
#include "common/mutex.h"
#include "controller/jobs/job_codec.h"
#include "controller/jobs/job_id.h"
#include "controller/service/convert_job.h"
#include "controller/store/sqlite_store.h"
#include "security/channel.h"
#include "security/credentials.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::controller {
namespace {

constexpr absl::Duration kMaxStart = absl::Seconds(60);

struct Options {
  std::string controller;
  std::string state;
  std::string port = "17970";
  int kills = 1000;
  int jobs = 100'000;
  int clients = 8;
  double minutes = 600;
  uint32_t seed = std::random_device{}();
};

// The controller under test.
class Controller {
 public:
  explicit Controller(const Options& options) : options_(options) {}
  ~Controller() { Kill(); }
  void Start() {
    const std::string listen = "127.0.0.1:" + options_.port;
    pid_ = ::fork();
    CHECK(pid_ >= 0);
    if (pid_ > 0) return;
    const std::string log = options_.state + ".log";
    const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::dup2(fd, 1);
    ::dup2(fd, 2);
    ::execl(options_.controller.c_str(), "trainyard-controller", "--state", options_.state.c_str(),
            "--listen", listen.c_str(), "--metrics-listen", "127.0.0.1:0", nullptr);
    ::_exit(127);
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    CHECK(::waitpid(pid_, &status, 0) == pid_);
    CHECK(WIFSIGNALED(status)) << "the controller ended by itself: see " << options_.state
                               << ".log";
    pid_ = -1;
  }

 private:
  const Options& options_;
  pid_t pid_ = -1;
};

std::unique_ptr<v1::JobService::Stub> Connect(const Options& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 50);
  // Each start of the controller makes a new token.
  const auto credential = FindCredential({.token_file = options.state + "/token"},
                                         *ParseAddress("127.0.0.1:" + options.port));
  return v1::JobService::NewStub(
      Dial("ipv4:127.0.0.1:" + options.port, credential.value_or(Credential()), arguments));
}

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

// A connection that is replaced after each failure, because a refused channel waits for seconds.
class Line {
 public:
  explicit Line(const Options& options) : options_(options), stub_(Connect(options)) {}

  // Calls until there is an answer other than "not reachable". A client with a request_id may
  // repeat.
  template <typename Call>
  grpc::Status Insist(Call call) {
    for (;;) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      const grpc::Status status = call(*stub_, context);
      const grpc::StatusCode code = status.error_code();
      if (code != grpc::UNAVAILABLE && code != grpc::DEADLINE_EXCEEDED && code != grpc::CANCELLED) {
        return status;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      stub_ = Connect(options_);
    }
  }

 private:
  const Options& options_;
  std::unique_ptr<v1::JobService::Stub> stub_;
};

struct Findings {
  Mutex mutex;
  // Acknowledged: id to request_id.
  std::map<std::string, std::string> jobs ABSL_GUARDED_BY(mutex);
  std::vector<std::string> faults ABSL_GUARDED_BY(mutex);
  std::atomic<int> submitted = 0;
  std::atomic<int> submitting = 0;  // Clients that still submit.
  std::atomic<uint64_t> calls = 0;
  std::atomic<bool> stop = false;
  void Fault(const std::string& what) {
    MutexLock lock(mutex);
    faults.push_back(what);
    std::fprintf(stderr, "FAULT: %s\n", what.c_str());
  }
};

// One client. For each job it submits, repeats, reads, cancels and reads.
class Client {
 public:
  Client(const Options& options, Findings& findings, int index)
      : line_(options),
        findings_(findings),
        index_(index),
        random_(options.seed + uint32_t(index)) {}

  void Run(int jobs) {
    std::string id;
    for (int i = 0; i < jobs && !findings_.stop; ++i) id = OneJob(absl::StrCat(index_, "-", i));
    --findings_.submitting;
    while (!findings_.stop) {
      ExpectState(id, v1::JOB_STATE_CANCELLED, "later");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  std::string Submit(const std::string& request_id) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = TinySpec();
    request.set_request_id(request_id);
    v1::SubmitJobResponse response;
    Expect(line_.Insist([&](v1::JobService::Stub& stub, grpc::ClientContext& c) {
      return Count(stub.SubmitJob(&c, request, &response));
    }),
           "submit", request_id);
    return response.job().id();
  }
  v1::JobState Read(const std::string& id) {
    v1::GetJobRequest request;
    request.set_job_id(id);
    v1::GetJobResponse response;
    Expect(line_.Insist([&](v1::JobService::Stub& stub, grpc::ClientContext& c) {
      return Count(stub.GetJob(&c, request, &response));
    }),
           "get", id);
    return response.job().state();
  }
  void Cancel(const std::string& id) {
    v1::CancelJobRequest request;
    request.set_job_id(id);
    v1::CancelJobResponse response;
    const grpc::Status status =
        line_.Insist([&](v1::JobService::Stub& stub, grpc::ClientContext& c) {
          return Count(stub.CancelJob(&c, request, &response));
        });
    // A repeated cancel finds that the first has ended the job.
    if (status.error_code() != grpc::FAILED_PRECONDITION) Expect(status, "cancel", id);
  }
  const grpc::Status& Count(const grpc::Status& status) {
    ++findings_.calls;
    return last_ = status;
  }
  void Expect(const grpc::Status& status, const char* what, const std::string& of) {
    if (!status.ok()) {
      findings_.Fault(absl::StrCat(what, " ", of, ": ", status.error_message(), " (",
                                   int(status.error_code()), ")"));
    }
  }
  void ExpectState(const std::string& id, v1::JobState wanted, const char* when) {
    const v1::JobState state = Read(id);
    if (state != wanted) {
      findings_.Fault(absl::StrCat(id, " is ", v1::JobState_Name(state), " ", when));
    }
  }
  std::string OneJob(const std::string& request_id) {
    const std::string id = Submit(request_id);
    {
      MutexLock lock(findings_.mutex);
      if (!findings_.jobs.emplace(id, request_id).second) {
        findings_.faults.push_back(absl::StrCat("two requests made ", id));
      }
    }
    ++findings_.submitted;
    if (random_() % 4 == 0 && Submit(request_id) != id)
      findings_.Fault("a second job for " + request_id);
    if (random_() % 4 == 0) ExpectState(id, v1::JOB_STATE_QUEUED, "before a cancel");
    Cancel(id);
    if (random_() % 2 == 0)
      ExpectState(id, v1::JOB_STATE_CANCELLED, "after an acknowledged cancel");
    if (random_() % 8 == 0 && Submit(request_id) != id)
      findings_.Fault("a second job for " + request_id);
    return id;
  }

  Line line_;
  Findings& findings_;
  const int index_;
  std::mt19937 random_;
  grpc::Status last_;
};

// Compares the whole list with the acknowledged jobs.
void CompareList(const Options& options, Findings& findings) {
  Line line(options);
  const auto acknowledged = [&] {
    const MutexLock lock(findings.mutex);
    return findings.jobs;
  }();
  std::set<std::string> listed;
  v1::ListJobsRequest request;
  request.set_page_size(1000);
  do {
    v1::ListJobsResponse response;
    const grpc::Status status =
        line.Insist([&](v1::JobService::Stub& stub, grpc::ClientContext& c) {
          return stub.ListJobs(&c, request, &response);
        });
    CHECK(status.ok()) << status.error_message();
    for (const v1::Job& job : response.jobs()) {
      if (!listed.insert(job.id()).second) findings.Fault(job.id() + " is listed twice");
      if (!acknowledged.contains(job.id())) {
        findings.Fault(job.id() +
                       " was never acknowledged, and every submit was repeated until it was");
      }
      if (job.state() != v1::JOB_STATE_CANCELLED) {
        findings.Fault(job.id() + " is " + v1::JobState_Name(job.state()) + " at the end");
      }
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  for (const auto& [id, request_id] : acknowledged) {
    if (!listed.contains(id)) findings.Fault(id + " was acknowledged, and is lost");
  }
}

int Soak(const Options& options) {
  std::mt19937 random(options.seed);
  Findings findings;
  Controller controller(options);
  controller.Start();
  std::vector<std::thread> clients;
  findings.submitting = options.clients;
  for (int i = 0; i < options.clients; ++i) {
    clients.emplace_back(
        [&, i] { Client(options, findings, i).Run(options.jobs / options.clients); });
  }
  const absl::Duration end = RealClock().Monotonic() + absl::Minutes(options.minutes);
  Line line(options);
  int kills = 0;
  for (; (kills < options.kills || findings.submitting > 0) && RealClock().Monotonic() < end;
       ++kills) {
    v1::ListJobsRequest request;
    request.set_page_size(1);
    v1::ListJobsResponse response;
    (void)line.Insist([&](v1::JobService::Stub& stub, grpc::ClientContext& c) {
      return stub.ListJobs(&c, request, &response);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + random() % 490));
    controller.Kill();
    controller.Start();
    if (kills % 50 == 0)
      std::fprintf(stderr, "%d kills, %d jobs\n", kills, findings.submitted.load());
  }
  findings.stop = true;
  for (std::thread& client : clients) client.join();
  CompareList(options, findings);
  const MutexLock lock(findings.mutex);
  std::printf("seed %u: %d kills, %zu jobs acknowledged, %lu calls, %zu faults\n", options.seed,
              kills, findings.jobs.size(), static_cast<unsigned long>(findings.calls.load()),
              findings.faults.size());
  return findings.faults.empty() ? 0 : 1;
}

// Makes jobs of which 90 % have ended.
void Fill(const Options& options) {
  const auto store = *SqliteStore::Open(options.state);
  const auto spec = *FromProto(TinySpec());
  uint64_t number = 0;
  for (int i = 0; i < options.jobs;) {
    WriteBatch batch;
    for (int j = 0; j < 500 && i < options.jobs; ++i, ++j) {
      Job job;
      job.number = number = NextJobNumber(number, RealClock().Now());
      job.create_time = RealClock().Now();
      job.state = i % 10 == 0 ? JobState::kQueued : JobState::kCancelled;
      batch.new_jobs.push_back({job.number, job.state, spec->bytes, spec->config,
                                EncodeFacts(spec->facts), EncodeJob(job)});
      batch.new_requests.push_back({absl::StrCat("request-", i), job.number});
      batch.events.push_back({job.number, {RealClock().Now(), EventType::kSubmitted, 0, "queued"}});
    }
    (void)store->Write(std::move(batch), OnFailure::kReport,
                       [](const absl::Status& status) { CHECK(status.ok()) << status; });
  }
}

double SecondsToFirstAnswer(const Options& options, Controller& controller) {
  const absl::Duration begin = RealClock().Monotonic();
  controller.Start();
  for (;;) {
    const auto stub = Connect(options);  // A refused channel would wait.
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    v1::ListJobsRequest request;
    request.set_page_size(1);
    v1::ListJobsResponse response;
    if (stub->ListJobs(&context, request, &response).ok()) break;
    CHECK(RealClock().Monotonic() - begin < kMaxStart) << "the controller does not serve";
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return absl::ToDoubleSeconds(RealClock().Monotonic() - begin);
}

void DropFromMemory(const std::string& directory) {
  const auto names = ListDirectory(directory);
  CHECK(names.ok()) << names.status();
  for (const std::string& name : *names) {
    const int fd = ::open((directory + "/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

int Recover(const Options& options) {
  Fill(options);
  Controller controller(options);
  (void)SecondsToFirstAnswer(options, controller);
  for (const bool cold : {false, true}) {
    std::vector<double> seconds;
    for (int i = 0; i < 7; ++i) {
      controller.Kill();
      if (cold) DropFromMemory(options.state);
      seconds.push_back(SecondsToFirstAnswer(options, controller));
    }
    std::sort(seconds.begin(), seconds.end());
    std::printf("%d jobs, %s: %.2f s from start to first answer (%.2f to %.2f, 7 kills)\n",
                options.jobs, cold ? "files not in memory" : "files in memory", seconds[3],
                seconds.front(), seconds.back());
  }
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Kills a real controller while clients use it, and compares their history with a model.");
  Options options;
  bool recover = false, fill = false;
  app.add_option("--controller", options.controller, "Path of trainyard-controller")->required();
  app.add_option("--state", options.state, "A directory that does not exist yet")->required();
  app.add_option("--port", options.port, "A free port")->capture_default_str();
  app.add_option("--kills", options.kills)->capture_default_str();
  app.add_option("--jobs", options.jobs)->capture_default_str();
  app.add_option("--clients", options.clients)->capture_default_str();
  app.add_option("--minutes", options.minutes, "End after this long")->capture_default_str();
  app.add_option("--seed", options.seed);
  app.add_flag("--recover", recover, "Measure the time to the first answer instead");
  app.add_flag("--fill", fill, "Only make a store with so many jobs");
  CLI11_PARSE(app, argc, argv);
  CHECK(!Exists(options.state)) << options.state << " exists";
  ::signal(SIGPIPE, SIG_IGN);
  if (fill) {
    Fill(options);
    return 0;
  }
  return recover ? Recover(options) : Soak(options);
}

}  // namespace
}  // namespace trainyard::controller

int main(int argc, char** argv) { return trainyard::controller::Main(argc, argv); }
