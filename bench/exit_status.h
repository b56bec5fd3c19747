// How a program of this directory ends.

#pragma once

#include <cstdio>
#include <iostream>

#include "absl/status/status.h"

namespace trainyard::bench {

// Says what went wrong. Figures that were not written, on a full disk or to nobody, are wrong, too.
inline int ExitStatus(const absl::Status& status) {
  if (!status.ok()) std::cerr << "error: " << status.message() << '\n';
  std::cout.flush();
  const bool written = std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!written) std::cerr << "error: the output could not be written\n";
  return status.ok() && written ? 0 : 1;
}

}  // namespace trainyard::bench
