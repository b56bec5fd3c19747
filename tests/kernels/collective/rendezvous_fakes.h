// Rendezvous for ranks that are threads, and for ranks that are processes.

#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/files.h"
#include "kernels/collective/rendezvous.h"

namespace trainyard::testing {

class MemoryRendezvous final : public Rendezvous {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                           [&] { return values_.contains(key); })) {
      return absl::DeadlineExceededError(absl::StrCat("nobody has set ", key));
    }
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// A file a key. There is no event to wait for, so it looks every millisecond.
class FileRendezvous final : public Rendezvous {
 public:
  explicit FileRendezvous(std::string directory) : directory_(std::move(directory)) {}
  absl::Status Set(const std::string& key, const std::string& value) override {
    return WriteFileAtomic(PathOf(key), value);
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(timeout);
    while (std::chrono::steady_clock::now() < deadline) {
      if (Exists(PathOf(key))) return ReadFile(PathOf(key));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return absl::DeadlineExceededError(absl::StrCat("nobody has set ", key));
  }

 private:
  std::string PathOf(const std::string& key) const {
    return absl::StrCat(directory_, "/", absl::StrReplaceAll(key, {{"/", "_"}}));
  }
  const std::string directory_;
};

}  // namespace trainyard::testing
