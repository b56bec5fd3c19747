#include "worker/trainer/affinity.h"

#include <sched.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard {

absl::Status RunOnProcessors(const std::vector<int64_t>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int64_t processor : processors) {
    if (processor < 0 || processor >= CPU_SETSIZE) {
      return absl::InvalidArgumentError(
          absl::StrCat("processors: wanted 0 to ", CPU_SETSIZE - 1, ", found ", processor));
    }
    CPU_SET(size_t(processor), &set);
  }
  if (::sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot run on processors ", absl::StrJoin(processors, ","), ": ", std::strerror(errno)));
}

}  // namespace trainyard
