// Stands in for thousands of workers of one controller. Each has a certificate and a TLS connection
// of its own, registers, sends beats, and comes back after a lost connection as trainyard-worker
// does. Prints a JSON line a second: how many are registered, how many streams ended, and how long
// the controller took to answer. bench/many_workers.py starts it, with the controller.

#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "bench/service_load/stand_in.h"
#include "common/check.h"
#include "common/net/address.h"
#include "security/controller_proof.h"
#include "security/credentials.h"
#include "security/secret_file.h"

namespace trainyard {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int kJoiningAtOnce = 8;
constexpr auto kLookEvery = std::chrono::milliseconds(5);

Invitation ReadInvitation(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecret(path);
  CHECK(text.ok()) << text.status();
  const absl::StatusOr<Invitation> invitation = ParseInvitation(*text);
  CHECK(invitation.ok()) << invitation.status();
  return *invitation;
}

std::vector<std::unique_ptr<StandIn>> Join(const Fleet& fleet,
                                           const std::vector<Invitation>& invitations, int count,
                                           Tally& tally) {
  std::vector<std::unique_ptr<StandIn>> workers(count);
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kJoiningAtOnce; ++t) {
    threads.emplace_back([&] {
      for (int i = next++; i < count; i = next++) {
        workers[i] = std::make_unique<StandIn>(fleet, absl::StrCat("worker-", i), tally);
        const absl::Status joined = workers[i]->Join(invitations[i % invitations.size()].token);
        CHECK(joined.ok()) << joined;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return workers;
}

int Main(int argc, char** argv) {
  CLI::App app("Stands in for workers of a controller");
  std::string controller;
  std::vector<std::string> join_files;
  int count = 0;
  int at_once = 256;
  app.add_option("--controller", controller)->required();
  app.add_option("--join", join_files, "Files with tokens of joiners, which are used in turn")
      ->required();
  app.add_option("--workers", count)->required();
  app.add_option("--at-once", at_once, "How many may be connecting: they share this machine");
  CLI11_PARSE(app, argc, argv);

  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // As the controller.
  rlimit files{};
  CHECK(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  CHECK(::setrlimit(RLIMIT_NOFILE, &files) == 0);

  const absl::StatusOr<Address> address = ParseAddress(controller);
  CHECK(address.ok()) << address.status();
  std::vector<Invitation> invitations;
  for (const std::string& file : join_files) invitations.push_back(ReadInvitation(file));
  const absl::StatusOr<std::string> authority =
      FetchAuthority(*address, invitations.front().fingerprint, kPatience);
  CHECK(authority.ok()) << authority.status();

  Tally tally;
  const Fleet fleet = {.controller = controller, .authority = *authority};
  const auto workers = Join(fleet, invitations, count, tally);
  std::cout << "joined\n" << std::flush;
  std::thread([&] {
    for (;;) {
      for (const auto& worker : workers) {
        while (tally.connecting() >= at_once) std::this_thread::sleep_for(kLookEvery);
        worker->Connect();
      }
      std::this_thread::sleep_for(kLookEvery);
    }
  }).detach();
  for (absl::Duration line = RealClock().Monotonic() + absl::Seconds(1);;) {
    const absl::Duration now = RealClock().Monotonic();
    for (const auto& worker : workers) worker->Work(now);
    if (now >= line) {
      const auto registered = std::count_if(
          workers.begin(), workers.end(), [](const auto& worker) { return worker->registered(); });
      std::cout << tally.Line(registered) << "\n" << std::flush;
      line += absl::Seconds(1);
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }
