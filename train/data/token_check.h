// Reads all tokens of a job's files once, so that one beyond the vocabulary ends the job at its
// start and not hours later.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "train/data/token_stream.h"

namespace trainyard {

struct TokenCheck {
  // This rank reads part `part` of `parts` equal ones.
  int64_t part = 0;
  int64_t parts = 1;
  int threads = 1;
  absl::Duration limit = absl::Minutes(1);
  const Clock& clock = RealClock();
};

// Whether a file of this kind can hold a token that the model does not have.
bool MayExceedVocabulary(const TokenStream& stream);

// Returns whether this rank has read its part. False: that would take longer than the limit, which
// is seen after a second or two. Streams whose tokens cannot exceed the vocabulary are not read.
// OUT_OF_RANGE: names the first token of the part that the model does not have. Other errors are
// those of TokenStream::Read.
absl::StatusOr<bool> CheckTokens(const std::vector<std::shared_ptr<const TokenStream>>& streams,
                                 const TokenCheck& check);

}  // namespace trainyard
