// A disk that takes nothing for a while, and says nothing: whoever syncs a file waits.

#pragma once

#include <atomic>

namespace trainyard::controller {

// As long as it lives, syncs of this process's files in directories called grants wait.
class DiskThatHangs {
 public:
  DiskThatHangs() { hangs_ = true; }
  ~DiskThatHangs() { hangs_ = false; }
  DiskThatHangs(const DiskThatHangs&) = delete;
  DiskThatHangs& operator=(const DiskThatHangs&) = delete;

  void AwaitCaller() const;  // Until somebody waits for the disk.

  static void BeforeSync(int fd);  // By the fsync of this process.

 private:
  static inline std::atomic<bool> hangs_ = false;
  static inline std::atomic<int> waiting_ = 0;
};

}  // namespace trainyard::controller
