// A disk that takes nothing, as far as this process is concerned.

#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "common/check.h"

namespace trainyard::controller {

// While it lives no file grows: that needs no privileges.
class FullDisk {
 public:
  FullDisk() {
    ::signal(SIGXFSZ, SIG_IGN);
    CHECK(::getrlimit(RLIMIT_FSIZE, &usual_) == 0);
    const rlimit nothing{.rlim_cur = 0, .rlim_max = usual_.rlim_max};
    CHECK(::setrlimit(RLIMIT_FSIZE, &nothing) == 0);
  }
  ~FullDisk() { CHECK(::setrlimit(RLIMIT_FSIZE, &usual_) == 0); }

 private:
  rlimit usual_{};
};

}  // namespace trainyard::controller
