#include "controller/service/grpc_log.h"

#include <grpc/support/log.h>

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
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
    const MutexLock lock(mutex_);
    const absl::Duration now = RealClock().Monotonic();
    if (now - second_ >= absl::Seconds(1)) {
      second_ = now;
      written_ = 0;
    }
    if (written_ == kMostInASecond) {
      ++left_out_;
      return;
    }
    ++written_;
    absl::string_view file = said.file;
    file.remove_prefix(file.rfind('/') + 1);  // The whole text where there is none.
    LogWarning("grpc", {{"file", file},
                        {"line", said.line},
                        {"said", absl::string_view(said.message).substr(0, kMostBytes)},
                        {"left_out", std::exchange(left_out_, 0)}});
  }

 private:
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
