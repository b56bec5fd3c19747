// What makes tokens of the lines of a file. Sources of data read lines through these classes, so
// that programs which only check a job's spec need no tokenizers.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/roots.h"

namespace trainyard {

inline constexpr size_t kMostLineBytes = size_t{16} << 20;

struct EncodedLine {
  std::vector<int32_t> ids = {};
  std::vector<uint8_t> counts = {};  // For each id, whether the model learns to write it.
  // Of a pair of answers: the chosen conversation is before this id, the rejected one from it on.
  // 0: the line is no pair.
  size_t rejected = 0;

  void clear() {
    ids.clear();
    counts.clear();
    rejected = 0;
  }
};

// Encodes for one thread. Not thread-safe.
class LineEncoder {
 public:
  virtual ~LineEncoder() = default;
  // Replaces `out` by the tokens of a line, which has no end. Errors say what was wanted and found,
  // but not where.
  virtual absl::Status Encode(absl::string_view line, EncodedLine& out) = 0;
};

// How lines become tokens. Immutable and thread-safe.
class LineEncoding {
 public:
  virtual ~LineEncoding() = default;
  // The encoding must outlive the encoder.
  virtual std::unique_ptr<LineEncoder> NewEncoder() const = 0;
  // Differs where any line may have other tokens or counts.
  virtual const std::string& digest() const = 0;
  // The path of the tokenizer's file, and the SHA-256 of its bytes.
  virtual const std::string& tokenizer_path() const = 0;
  virtual std::string tokenizer_sha256() const = 0;
};

struct LineEncodingOptions {
  // As ChatFormatChoice (choose_format.h), and the next two.
  std::string tokenizer = {};
  std::string format = {};
  std::string date = {};
  int64_t vocab = 0;   // Ids are below it.
  bool pairs = false;  // Lines are pairs of answers.
  // A line is a whole text of any length, as it is, and the model learns all of its tokens. There
  // is no format, and the tokenizer's own template adds nothing.
  bool texts = false;
  Roots roots = {};
};

using OpenLineEncoding = std::function<absl::StatusOr<std::shared_ptr<const LineEncoding>>(
    const LineEncodingOptions& options)>;

}  // namespace trainyard
