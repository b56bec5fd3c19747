// A disk that takes nothing, as far as this process is concerned.

#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "common/check.h"

namespace trainyard {

// While it lives nothing is written to files beyond their first bytes, of which there are none
// unless a test says so: that needs no privileges.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes = 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    CHECK(::getrlimit(RLIMIT_FSIZE, &usual_) == 0);
    const rlimit first{.rlim_cur = bytes, .rlim_max = usual_.rlim_max};
    CHECK(::setrlimit(RLIMIT_FSIZE, &first) == 0);
  }
  ~FullDisk() { CHECK(::setrlimit(RLIMIT_FSIZE, &usual_) == 0); }

 private:
  rlimit usual_{};
};

}  // namespace trainyard
