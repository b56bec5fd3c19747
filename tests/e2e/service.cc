#include "tests/e2e/service.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/client.h"
#include "common/check.h"
#include "common/files.h"

namespace trainyard::testing {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(20);  // Between two looks at a job.

std::string FreshDirectory() {
  // Without a doubled slash: processes are found by this path in their command lines.
  std::string path = std::filesystem::path(::testing::TempDir()) / "trainyard-e2e-XXXXXX";
  EXPECT_NE(::mkdtemp(path.data()), nullptr) << path;
  return path;
}

std::string Value(const std::string& line, const std::string& key) {
  for (absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \n"))) {
    if (absl::ConsumePrefix(&word, key)) return std::string(word);
  }
  return "";
}

}  // namespace

std::string TestJob::Text() const {
  const std::string small =
      absl::StrCat("preset: ", moe.empty() ? "llama3-8b" : "qwen3-30b-a3b",
                   ", overrides: {layers: 2, hidden: ", hidden, ", ffn: ", 3 * hidden,
                   ", heads: 4, kv_heads: 2, vocab: 256, max_seq: 64",
                   moe.empty() ? "" : absl::StrCat(", moe: {", moe, "}"), "}");
  std::string text = absl::StrCat(
      "name: ", name, "\nmodel: {", model.empty() ? small : model, "}\nprecision: ", precision,
      "\nbatch: {global: 4, micro: ", micro, ", sequence: 64}\ndata: {", data, "}\n");
  absl::StrAppend(&text, "optimizer: {adamw: {", adamw, "}}\nsteps: ", steps,
                  "\ndevices: ", devices, "\nseed: 7\n", more, more.empty() ? "" : "\n");
  if (checkpoint_every > 0) {
    absl::StrAppend(&text, "checkpoint: {directory: ", directory,
                    ", every_steps: ", checkpoint_every, "}\n");
  }
  return text;
}

Service::Service(const ServiceOptions& options)
    : options_(options), binaries_(std::getenv("TRAINYARD_BIN")), directory_(FreshDirectory()) {
  options.worker_flags.empty() ? StartUp() : StartParts();
}

Service::~Service() {
  for (auto process = processes_.rbegin(); process != processes_.rend(); ++process) {
    if (!(*process)->Running()) continue;  // The test ended it, and has looked how.
    (*process)->Signal(SIGTERM);
    EXPECT_EQ((*process)->Wait(absl::Seconds(60)), 0);
  }
  // A supervisor that outlives a killed worker ends a moment after its trainer.
  const auto left = [this] { return FindProcesses(directory_); };
  EXPECT_TRUE(WaitUntil([&] { return left().empty(); }, absl::Seconds(10)));
  for (const Found& process : left()) {
    ADD_FAILURE() << "left running: " << process.command;
    Kill(process.pid, SIGKILL);
  }
  if (::testing::Test::HasFailure()) {
    std::cerr << "kept for a look: " << directory_ << "\n";
  } else {
    EXPECT_TRUE(RemoveTree(directory_).ok());
  }
}

void Service::StartAgain() {
  EXPECT_FALSE(up().Running());
  StartUp();
}

void Service::StartUp() {
  std::vector<std::string> argv = {binaries_ + "/trainyard",
                                   "up",
                                   "--workers",
                                   absl::StrCat(options_.workers),
                                   "--devices-per-worker",
                                   absl::StrCat(options_.devices_per_worker),
                                   "--state",
                                   directory_ + "/state",
                                   "--listen",
                                   "127.0.0.1:0",
                                   "--metrics-listen",
                                   "127.0.0.1:0"};
  argv.insert(argv.end(), options_.up_flags.begin(), options_.up_flags.end());
  processes_.push_back(std::make_unique<Process>(ProcessOptions{.argv = argv,
                                                                .directory = directory_,
                                                                .environment = {},
                                                                .output = directory_ + "/up.out",
                                                                .errors = directory_ + "/up.err"}));
  const std::string line = WaitForReady("up");
  address_ = Value(line, "controller=");
  metrics_url_ = Value(line, "metrics=");
  token_file_ = directory_ + "/state/controller/token";
  client_ = nullptr;
}

std::string Service::StartPart(const std::string& name) {
  Part& part = parts_.at(name);
  part.process = processes_.size();
  processes_.push_back(std::make_unique<Process>(
      ProcessOptions{.argv = part.argv,
                     .directory = directory_,
                     .environment = {},
                     .output = absl::StrCat(directory_, "/", name, ".out"),
                     .errors = absl::StrCat(directory_, "/", name, ".err")}));
  return WaitForReady(name);
}

void Service::StartAgain(const std::string& name) {
  EXPECT_FALSE(part(name).Running());
  StartPart(name);
}

void Service::StartParts() {
  parts_["controller"].argv = {binaries_ + "/trainyard-controller",
                               "--state",
                               directory_ + "/controller",
                               "--listen",
                               "127.0.0.1:0",
                               "--metrics-listen",
                               "127.0.0.1:0"};
  const std::string line = StartPart("controller");
  address_ = Value(line, "controller=");
  metrics_url_ = Value(line, "metrics=");
  token_file_ = directory_ + "/controller/token";
  std::vector<std::string>& worker = parts_["worker"].argv;
  worker = {binaries_ + "/trainyard-worker",
            "--controller",
            address_,
            "--state",
            directory_ + "/worker",
            "--devices",
            absl::StrCat(options_.devices_per_worker),
            "--root",
            directory_,
            "--metrics-listen",
            "127.0.0.1:0"};
  worker.insert(worker.end(), options_.worker_flags.begin(), options_.worker_flags.end());
  StartPart("worker");
}

std::string Service::WaitForReady(const std::string& log) {
  const std::string path = absl::StrCat(directory_, "/", log, ".out");
  const auto ready = [&] {
    return absl::StrContains(ReadFile(path).value_or(""), "\n") || !processes_.back()->Running();
  };
  EXPECT_TRUE(WaitUntil(ready)) << log;
  const std::string line = ReadFile(path).value_or("");
  EXPECT_TRUE(absl::StartsWith(line, "ready "))
      << line << ReadFile(directory_ + "/" + log + ".err").value_or("");
  return line;
}

Finished Service::Trainyard(const std::vector<std::string>& words) {
  return Run("trainyard", words);
}

Finished Service::Run(const std::string& program, const std::vector<std::string>& words) {
  const std::string stem = absl::StrCat(directory_, "/run-", ++runs_);
  std::vector<std::string> argv = {binaries_ + "/" + program};
  argv.insert(argv.end(), words.begin(), words.end());
  Process process({.argv = argv,
                   .directory = directory_,
                   .environment = {{"TRAINYARD_CONTROLLER", address_}},
                   .output = stem + ".out",
                   .errors = stem + ".err"});
  Finished finished;
  finished.exit_code = process.Wait(absl::Seconds(120));
  finished.output = ReadFile(stem + ".out").value_or("");
  finished.errors = ReadFile(stem + ".err").value_or("");
  return finished;
}

std::string Service::Write(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(directory_, "/", name);
  EXPECT_TRUE(WriteFileAtomic(path, text).ok());
  return path;
}

std::string Service::Submit(const TestJob& job) {
  const Finished submitted = Trainyard({"submit", Write(job.name + ".yaml", job.Text())});
  EXPECT_EQ(submitted.exit_code, 0) << submitted;
  return std::string(absl::StripSuffix(submitted.output, "\n"));
}

nlohmann::json Service::Job(const std::string& id) {
  const Finished got = Trainyard({"get", id, "-o", "jsonl"});
  EXPECT_EQ(got.exit_code, 0) << got;
  const nlohmann::json job = nlohmann::json::parse(got.output, nullptr, false);
  EXPECT_TRUE(job.is_object()) << got.output;
  return job.is_object() ? job : nlohmann::json::object();
}

v1::Job Service::Asked(const std::string& id) {
  if (client_ == nullptr) {
    client_ = std::make_unique<cli::Client>(address_, CredentialPlaces{.token_file = token_file_});
  }
  v1::GetJobRequest request;
  request.set_job_id(id);
  const auto response = client_->Call(&v1::JobService::Stub::GetJob, request);
  EXPECT_TRUE(response.ok()) << response.status();
  return response.ok() ? response->job() : v1::Job();
}

std::string Service::State(const std::string& id) {
  const std::string name = v1::JobState_Name(Asked(id).state());
  return std::string(absl::StripPrefix(name, "JOB_STATE_"));
}

uint64_t Service::Step(const std::string& id) { return Asked(id).progress().step(); }

std::string Service::WaitForEnd(const std::string& id) {
  std::string state;
  EXPECT_TRUE(WaitUntil(
      [&] {
        state = State(id);
        return state == "UNSPECIFIED" || state == "SUCCEEDED" || state == "FAILED" ||
               state == "CANCELLED";
      },
      absl::Seconds(100), kPause))
      << id << " is " << state;
  std::cerr << id << " " << state << " " << Job(id).value("state_reason", "") << "\n";
  return state;
}

bool Service::WaitForStep(const std::string& id, uint64_t step) {
  return WaitUntil([&] { return Step(id) >= step; }, absl::Seconds(60), kPause);
}

std::vector<nlohmann::json> Service::Steps(const std::string& id) {
  const Finished got = Trainyard({"steps", id, "-o", "jsonl"});
  EXPECT_EQ(got.exit_code, 0) << got;
  std::vector<nlohmann::json> steps;
  for (absl::string_view line : absl::StrSplit(got.output, '\n', absl::SkipEmpty())) {
    steps.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(steps.back().is_object()) << line;
  }
  return steps;
}

std::string Service::Digest(const std::string& directory) {
  const Finished got = Trainyard({"checkpoint", "digest", directory});
  EXPECT_EQ(got.exit_code, 0) << got;
  return got.output.substr(0, got.output.find(' '));
}

std::vector<Found> Service::Trainers(const std::string& job_id) {
  std::vector<Found> trainers;
  for (Found& process : FindProcesses(directory_)) {
    const std::string program = process.command.substr(0, process.command.find(' '));
    if (absl::EndsWith(program, "trainyard-trainer") &&
        absl::StrContains(process.command, job_id)) {
      trainers.push_back(std::move(process));
    }
  }
  // The command names the rank's directory: the worker's, then the job and the rank's number.
  const auto rank = [&](const Found& trainer) {
    return trainer.command.substr(trainer.command.find(job_id));
  };
  std::sort(trainers.begin(), trainers.end(),
            [&](const Found& a, const Found& b) { return rank(a) < rank(b); });
  return trainers;
}

pid_t Service::Find(const std::string& program, const std::string& text) {
  std::vector<pid_t> pids;
  for (const Found& process : FindProcesses(directory_)) {
    if (absl::StartsWith(process.command, absl::StrCat(binaries_, "/", program, " ")) &&
        absl::StrContains(process.command, text)) {
      pids.push_back(process.pid);
    }
  }
  return pids.size() == 1 ? pids[0] : -1;
}

void ExpectPhasesFitIntoTheStep(const nlohmann::json& step) {
  const std::set<std::string> beside = {"data", "checkpoint", "validation"};
  double sum = 0;
  for (const auto& [phase, seconds] : step.at("phases").items()) {
    if (!beside.contains(phase)) sum += seconds.get<double>();
  }
  EXPECT_GT(sum, 0) << step.dump();
  EXPECT_LE(sum, 1.02 * step.at("seconds").get<double>() + 1e-5) << step.dump();
}

std::string HttpGet(const std::string& url) {
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "http://127.0.0.1:")) return "";
  const std::pair<std::string, std::string> parts = absl::StrSplit(rest, absl::MaxSplits('/', 1));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(uint16_t(std::stoi(parts.first)));
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::string request = absl::StrCat("GET /", parts.second, " HTTP/1.0\r\n\r\n");
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == ssize_t(request.size())) {
    char buffer[4096];
    for (ssize_t n; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;)
      answer.append(buffer, size_t(n));
  }
  ::close(fd);
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

std::string FaultyTrainer(const std::string& fault) {
  std::string directory = absl::StrCat(::testing::TempDir(), "/faulty-trainer-XXXXXX");
  CHECK(::mkdtemp(directory.data()) != nullptr) << directory;
  const std::string path = directory + "/trainer";
  // Its config lies in a directory with the name JOB.ATTEMPT.RANK.
  EXPECT_TRUE(
      WriteFileAtomic(path, absl::StrCat("#!/bin/sh\n"
                                         "case \"$1\" in */*.1.1/*) grep -qs '\"undisturbed\"' "
                                         "\"$1\" || set -- \"$@\" --fault ",
                                         fault, ";; esac\nexec ", std::getenv("TRAINYARD_BIN"),
                                         "/trainyard-trainer \"$@\"\n"))
          .ok());
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

}  // namespace trainyard::testing
