// The other ranks of this machine that hold a model together with this process, rank 0: copies of
// this program, which end with it. The ranks find each other through a directory that only this
// user can read.

#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/collective/rendezvous.h"

namespace trainyard {

// A file for each key. `check`, if it is not null, ends a wait by its error.
std::unique_ptr<Rendezvous> DirectoryRendezvous(const std::string& directory,
                                                std::function<absl::Status()> check);

// Not thread-safe.
class FollowerProcesses {
 public:
  // How a rank is started: arguments of this program, and variables that replace those of the
  // environment ("NAME=VALUE").
  struct Command {
    std::vector<std::string> arguments;
    std::vector<std::string> variables;
  };
  // Starts the ranks from 1 on. `command` gets the rank and the directory of the rendezvous. Must
  // be called on the main thread, because the kernel ends a follower (SIGKILL) with the thread that
  // made it. Errors: those of the directory, and of fork.
  static absl::StatusOr<std::unique_ptr<FollowerProcesses>> Start(
      int size, const std::function<Command(int rank, const std::string& directory)>& command);
  // Ends those that have not ended (SIGKILL), and removes the directory.
  ~FollowerProcesses();
  FollowerProcesses(const FollowerProcesses&) = delete;

  // Whose waits end if a follower has ended.
  std::unique_ptr<Rendezvous> NewRendezvous();
  // Removes the directory, which nobody uses once all ranks have met.
  void RemoveDirectory();
  // Waits for this time, or until a follower has ended: "rank 1 was killed by signal 9". "": none.
  std::string Ended(absl::Duration patience);
  // Calls `lost` once on the thread that is returned, as soon as a follower has ended, unless the
  // thread is asked to stop before.
  std::jthread Watch(std::function<void()> lost) const;
  // Waits for this time, or until all have ended.
  void WaitForAll(absl::Duration patience);

 private:
  struct Follower {
    pid_t pid = -1;     // -1: has been waited for.
    std::string ended;  // How; "" until then.
  };
  explicit FollowerProcesses(std::string directory) : directory_(std::move(directory)) {}
  absl::Status StartOne(int rank, const Command& command);
  // Waits for those that have ended by now. Returns how many have not.
  size_t Look();

  const std::string directory_;
  std::vector<Follower> followers_;
};

}  // namespace trainyard
