// Where the lines of a file begin, and how many tokens they have. The index is kept beside the
// file, as PATH.ENCODING.chat_index, so that the lines are encoded once and not at each start of a
// rank. ENCODING are the first digits of the encoding's digest.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/roots.h"
#include "train/chat/line_encoder.h"

namespace trainyard {

inline constexpr char kLineIndexSuffix[] = ".chat_index";

// As in the file of the index, in the order of bytes of the machine.
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
static_assert(sizeof(IndexedLine) == 24);

IndexedLine IndexOf(const EncodedLine& encoded, uint64_t offset);

// Lines of white space alone are none.
using LineIndex = std::vector<IndexedLine>;

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
