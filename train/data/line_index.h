// Where the lines of a file begin, and how many tokens they have. The index is kept beside the
// file, as PATH.ENCODING.chat_index, so that the lines are encoded once and not at each start of a
// rank. ENCODING are the first digits of the encoding's digest.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/roots.h"
#include "train/chat/line_encoder.h"

namespace trainyard {

inline constexpr char kLineIndexSuffix[] = ".chat_index";

// A line of the file.
struct IndexedLine {
  uint64_t offset = 0;  // Of its first byte.
  uint32_t ids = 0;     // How many tokens it has.
  uint32_t target = 0;  // The first of them that counts and is not the line's first; 0: none.
  // Of a pair of answers: the two above are of the chosen conversation, and these of the rejected
  // one, in its own tokens. 0: the line is no pair.
  uint32_t rejected_ids = 0;
  uint32_t rejected_target = 0;
  bool operator==(const IndexedLine&) const = default;
};

IndexedLine IndexOf(const EncodedLine& encoded, uint64_t offset);

// The lines of a file, without those of white space alone. Has 16 bytes for each, and 24 if there
// are pairs of answers.
class LineIndex {
 public:
  size_t size() const { return lines_.size(); }
  IndexedLine operator[](size_t i) const;
  uint64_t offset(size_t i) const { return lines_[i].offset; }
  void Add(const IndexedLine& line);
  bool operator==(const LineIndex&) const = default;

  // The arrays of numbers, as they stand in the file of the index, one after the other, in the
  // order of bytes of the machine. The second array is empty if there are no pairs.
  std::array<std::span<std::byte>, 2> arrays();
  static uint64_t Bytes(uint64_t lines, bool pairs) {
    return lines * (sizeof(Line) + (pairs ? sizeof(Conversation) : 0));
  }
  // Makes place for the numbers of so many lines.
  void Resize(size_t lines, bool pairs);

 private:
  struct Conversation {
    uint32_t ids = 0, target = 0;
    bool operator==(const Conversation&) const = default;
  };
  struct Line {
    uint64_t offset = 0;
    Conversation first;
    bool operator==(const Line&) const = default;
  };
  static_assert(sizeof(Line) == 16 && sizeof(Conversation) == 8);

  std::vector<Line> lines_;
  std::vector<Conversation> rejected_;  // Of all lines, or empty.
};

// Returns the index beside the file, if it is whole and of this file and this encoding: of a file
// of this size, that was changed last at this time. Otherwise encodes all lines, on the processors
// of the process, and writes the index. Where the index cannot be written, logs why. Processes of
// one host that open the same file encode it once: the others wait, at most ten minutes.
//
// Errors name the file. INVALID_ARGUMENT and DATA_LOSS: those of LineEncoder::Encode, with the
// number of the first line that is wrong; INVALID_ARGUMENT: a line of more than kMostLineBytes, or
// no line. Those of InputFile::ReadAt.
absl::StatusOr<LineIndex> OpenLineIndex(const InputFile& file, const LineEncoding& encoding);

// Reads the line's bytes, without its end. DATA_LOSS: the file ends before.
absl::Status ReadLine(const InputFile& file, const LineIndex& index, int64_t line,
                      std::string& out);

}  // namespace trainyard
