// Files as one long run of tokens, its documents, and the samples cut from a part of it.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "train/data/dataset.h"
#include "train/data/indexed_format.h"
#include "train/data/token_dataset.h"

namespace trainyard {

// Thread-safe. Errors as Dataset::Read.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual int64_t num_tokens() const = 0;
  virtual int64_t vocab() const = 0;     // Every token is below it.
  virtual IndexDType dtype() const = 0;  // In which the file holds the tokens.
  virtual absl::Status Read(int64_t first, std::span<int32_t> out) const = 0;
  // A stream without documents is one document.
  virtual int64_t num_documents() const { return 1; }
  // Writes the number of tokens before each of the documents [first, first + out.size()). The
  // document after the last one stands for the end of the stream.
  virtual absl::Status ReadDocumentStarts(int64_t first, std::span<int64_t> out) const;
  // For each of the tokens [first, first + out.size()), writes where its document begins, counted
  // from `first`; 0 if it begins before.
  virtual absl::Status ReadDocumentBegins(int64_t first, std::span<int32_t> out) const;
};

// A part of a stream: its tokens [begin, end), of which there is at least one. A document that
// reaches out of the part is cut.
struct StreamPart {
  std::shared_ptr<const TokenStream> stream;
  std::string file;  // For messages.
  int64_t begin = 0;
  int64_t end = 0;

  int64_t tokens() const { return end - begin; }
};

// A stream whose end is held out.
struct SplitStream {
  std::shared_ptr<const TokenStream> stream;
  std::string file;  // For messages.
  // Training has the tokens [0, split), and validation [split, num_tokens): none if the two are
  // equal. A split in the middle of a document makes it two.
  int64_t split = 0;

  int64_t held_out() const { return stream->num_tokens() - split; }
  StreamPart train() const { return {stream, file, 0, split}; }
  StreamPart validation() const { return {stream, file, split, stream->num_tokens()}; }
};

// Returns INVALID_ARGUMENT, which names the file, if a part is too short for one sample.
absl::Status CheckLengths(const SplitStream& split, int64_t sequence);

// Cuts both parts into samples. Sample i of a part are its tokens [i * sequence, (i + 1) *
// sequence]: neighbours share one token, which is the last target of one and the first input of the
// next. Errors: those of CheckLengths.
absl::StatusOr<DataSplits> CutStream(const SplitStream& split, int64_t sequence,
                                     DocumentOptions documents = {});

}  // namespace trainyard
