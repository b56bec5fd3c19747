// Where the lines of a file begin, and how many tokens they have. The index is kept beside the
// file, as PATH.ENCODING.chat_index, so that the lines are encoded once and not at each start of a
// rank. All ranks of a host share the memory of the index (MappedFile). ENCODING are the first
// digits of the encoding's digest.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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

// A file whose bytes are mapped into memory, which all processes of the host share. If somebody
// shortens the file, the process ends where it reads what is missing (SIGBUS); to replace it is
// harmless. Immutable.
class MappedFile {
 public:
  // Maps the first `bytes` bytes of the open file. Nullptr: the system refuses.
  static std::shared_ptr<const MappedFile> Map(int file, size_t bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  // Says that none of the pages is needed soon: they do not count as memory of this process then.
  void Forget() const;

 private:
  explicit MappedFile(std::span<std::byte> bytes) : bytes_(bytes) {}
  const std::span<std::byte> bytes_;
};

// The lines of a file, without those of white space alone. Has 16 bytes for each, and 24 if there
// are pairs of answers. They lie in memory while lines are added, and are then mapped from the file
// of the index.
class LineIndex {
 public:
  LineIndex() = default;
  // Of the arrays of so many lines, which begin at byte `begin` of the file, a multiple of 8.
  LineIndex(std::shared_ptr<const MappedFile> file, size_t begin, size_t lines, bool pairs);

  size_t size() const { return lines().size(); }
  IndexedLine operator[](size_t i) const;
  uint64_t offset(size_t i) const { return lines()[i].offset; }
  void Add(const IndexedLine& line);  // CHECKs that the lines lie in memory.
  bool operator==(const LineIndex& other) const;
  const MappedFile* mapped() const { return mapped_.get(); }  // Null: the lines lie in memory.

  // The arrays of numbers, as they stand in the file of the index, one after the other, in the
  // order of bytes of the machine. The second array is empty if there are no pairs.
  std::array<std::span<const std::byte>, 2> arrays() const;
  static uint64_t Bytes(uint64_t lines, bool pairs) {
    return lines * (sizeof(Line) + (pairs ? sizeof(Conversation) : 0));
  }

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
  std::span<const Line> lines() const { return mapped_ ? mapped_lines_ : lines_; }
  std::span<const Conversation> rejected() const {  // Of all lines, or empty.
    return mapped_ ? mapped_rejected_ : rejected_;
  }

  std::vector<Line> lines_;
  std::vector<Conversation> rejected_;
  std::shared_ptr<const MappedFile> mapped_;
  std::span<const Line> mapped_lines_;
  std::span<const Conversation> mapped_rejected_;
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
