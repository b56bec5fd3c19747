// Says how far a corpus is, to a person: in place on a terminal, and elsewhere in a line now and
// then.

#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "common/clock.h"
#include "train/tools/tokenize.h"

namespace trainyard {

// Not thread-safe.
class CorpusProgressPrinter {
 public:
  CorpusProgressPrinter(const Clock& clock, std::ostream& out, bool terminal)
      : clock_(clock), out_(out), terminal_(terminal) {}

  // The first call says where the run begins, and prints nothing.
  void Show(const CorpusProgress& progress);
  // Takes the line of a terminal away.
  void End();

 private:
  // "34% of 1.2 GiB  5213 documents  89213412 tokens  27.1 MiB/s  29s left"
  std::string Line(const CorpusProgress& progress, absl::Duration since_begin) const;

  const Clock& clock_;
  std::ostream& out_;
  const bool terminal_;
  absl::Duration begin_, shown_;
  std::optional<int64_t> begin_bytes_;
  bool has_line_ = false;  // On a terminal.
};

}  // namespace trainyard
