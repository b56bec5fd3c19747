// A controller as a process, with a limit of open files, and its callers.

#pragma once

#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "security/channel.h"
#include "security/credentials.h"
#include "tests/controller/testing/temp_directory.h"
#include "tests/testing/process.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::testing {

class ControllerProcess {
 public:
  explicit ControllerProcess(int open_files) {
    const char* const bin = std::getenv("TRAINYARD_BIN");
    CHECK(bin != nullptr) << "TRAINYARD_BIN is not set";
    const std::string limit = absl::StrCat("--nofile=", open_files, ":", open_files);
    process_ = std::make_unique<Process>(ProcessOptions{
        .argv = {"/usr/bin/prlimit", limit, absl::StrCat(bin, "/trainyard-controller"), "--state",
                 directory_.path() + "/state", "--listen", "127.0.0.1:0", "--metrics-listen",
                 "127.0.0.1:0"},
        .directory = directory_.path(),
        .environment = {},
        .output = directory_.path() + "/output",
        .errors = directory_.path() + "/errors"});
    const std::string before = "ready controller=";
    CHECK(WaitUntil([&] { return Read("output").find(" metrics=") != std::string::npos; }))
        << Read("errors");
    const std::string ready = Read("output");
    address_ = ready.substr(before.size(), ready.find(" metrics=") - before.size());
  }

  const std::string& address() const { return address_; }
  int port() const { return ParseAddress(address_)->port; }
  std::string log() const { return Read("errors"); }

  // Resident bytes now.
  int64_t Memory() const {
    std::ifstream file(absl::StrCat("/proc/", process_->pid(), "/statm"));
    int64_t size = 0, resident = 0;
    file >> size >> resident;
    return resident * ::sysconf(_SC_PAGESIZE);
  }

  int OpenFiles() const {
    using Files = std::filesystem::directory_iterator;
    return int(std::distance(Files(absl::StrCat("/proc/", process_->pid(), "/fd")), Files()));
  }

  // The threads that run before all others: SCHED_FIFO.
  int ThreadsThatRunFirst() const {
    int count = 0;
    using Threads = std::filesystem::directory_iterator;
    for (const auto& thread : Threads(absl::StrCat("/proc/", process_->pid(), "/task"))) {
      pid_t id = 0;
      CHECK(absl::SimpleAtoi(thread.path().filename().string(), &id));
      count += ::sched_getscheduler(id) == SCHED_FIFO ? 1 : 0;
    }
    return count;
  }

  Credential credential() const {
    auto credential =
        FindCredential({.token_file = directory_.path() + "/state/token"}, *ParseAddress(address_));
    CHECK(credential.ok()) << credential.status();
    return *std::move(credential);
  }
  // A connection of its own.
  std::shared_ptr<grpc::Channel> Channel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return Dial(address_, credential(), arguments);
  }
  std::unique_ptr<v1::JobService::Stub> Connect() const {
    return v1::JobService::NewStub(Channel());
  }

 private:
  std::string Read(const std::string& name) const {
    std::ifstream file(directory_.path() + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const controller::TempDirectory directory_;
  std::unique_ptr<Process> process_;
  std::string address_;
};

// A call like our clients': it waits for a connection until the deadline, and is made again where
// gRPC hung up.
inline grpc::Status List(v1::JobService::Stub& stub, absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  for (;;) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    context.set_wait_for_ready(true);
    v1::ListJobsResponse response;
    grpc::Status status = stub.ListJobs(&context, {}, &response);
    if (status.error_code() != grpc::UNAVAILABLE || absl::Now() > deadline) return status;
  }
}

}  // namespace trainyard::testing
