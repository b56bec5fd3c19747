// Files as one long run of tokens, and the samples cut from a part of it.

#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "train/data/dataset.h"

namespace trainyard {

// Thread-safe. Errors as Dataset::Read.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual int64_t num_tokens() const = 0;
  virtual int64_t vocab() const = 0;  // Every token is below it.
  virtual absl::Status Read(int64_t first, std::span<int32_t> out) const = 0;
  // Whether samples have the input kDocumentBegins (models/program/input.h).
  virtual bool has_documents() const { return false; }
  // Only called if there are documents. For each of the tokens [first, first + out.size()), writes
  // where its document begins, counted from `first`; 0 if it begins before.
  virtual absl::Status ReadDocumentBegins(int64_t /*first*/, std::span<int32_t> /*out*/) const {
    return absl::UnimplementedError("a stream without documents");
  }
};

// Cuts [0, split) into training and [split, num_tokens) into validation samples (none where split
// is num_tokens). Sample i of a part are its tokens [i * sequence, (i + 1) * sequence]: neighbours
// share one token, which is the last target of one and the first input of the next.
// INVALID_ARGUMENT names `file` where a part is too short for one sample.
absl::StatusOr<DataSplits> CutStream(std::unique_ptr<const TokenStream> stream, int64_t split,
                                     int64_t sequence, const std::string& file);

}  // namespace trainyard
