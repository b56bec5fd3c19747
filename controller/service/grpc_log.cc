#include "controller/service/grpc_log.h"

#include <grpc/support/log.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mutex.h"

namespace trainyard::controller {
namespace {

constexpr int kMostInASecond = 10;
constexpr size_t kMostBytes = 300;

class GrpcLog {
 public:
  void Write(const gpr_log_func_args& said) {
    const absl::string_view text = said.message;
    // gRPC ends the process after these words.
    const bool last = absl::StartsWith(text, "assertion failed");
    const std::optional<uint64_t> left_out = Take();
    if (!left_out && !last) return;
    absl::string_view file = said.file;
    file.remove_prefix(file.rfind('/') + 1);  // The whole text where there is none.
    LogWarning("grpc", {{"file", file},
                        {"line", said.line},
                        {"said", text.substr(0, kMostBytes)},
                        {"left_out", left_out.value_or(0)}});
  }

 private:
  // Returns how many lines were left out before this one. Nothing: this one is, too.
  std::optional<uint64_t> Take() {
    const MutexLock lock(mutex_);
    const absl::Duration now = RealClock().Monotonic();
    if (now - second_ >= absl::Seconds(1)) {
      second_ = now;
      written_ = 0;
    }
    if (written_ == kMostInASecond) {
      ++left_out_;
      return std::nullopt;
    }
    ++written_;
    return std::exchange(left_out_, 0);
  }

  Mutex mutex_;
  absl::Duration second_ ABSL_GUARDED_BY(mutex_);
  int written_ ABSL_GUARDED_BY(mutex_) = 0;  // In this second.
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void LogWhatGrpcSays() {
  ::gpr_set_log_function([](gpr_log_func_args* said) {
    static GrpcLog& log = *new GrpcLog();  // gRPC's threads may outlive main().
    log.Write(*said);
  });
}

}  // namespace trainyard::controller
