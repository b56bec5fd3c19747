#include "worker/channel/kept_lines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/crc32.h"

namespace trainyard::channel {
namespace {

constexpr absl::string_view kBegin = "{\"checksum\":\"";
constexpr absl::string_view kEnd = "\",";

// Of the line's fields: all after the opening brace and the checksum.
std::string ChecksumOf(absl::string_view fields) {
  return absl::StrFormat("%08x", Crc32(0, fields.data(), fields.size()));
}

}  // namespace

std::string WithChecksum(absl::string_view line) {
  const absl::string_view fields = line.substr(1);
  return absl::StrCat(kBegin, ChecksumOf(fields), kEnd, fields, "\n");
}

absl::StatusOr<Envelope> KeptLines::Checked(absl::string_view line) const {
  constexpr size_t kDigits = 8;
  absl::string_view fields = line;
  if (absl::ConsumePrefix(&fields, kBegin)) {
    const absl::string_view checksum = fields.substr(0, kDigits);
    fields.remove_prefix(checksum.size());
    if (!absl::ConsumePrefix(&fields, kEnd) || checksum != ChecksumOf(fields)) {
      return absl::DataLossError("the checksum is wrong");
    }
    return Decode(line);
  }
  absl::StatusOr<Envelope> earlier = Decode(line);
  if (checked_ || (earlier.ok() && earlier->sequence != 0 && !earlier_numbered_)) {
    return absl::DataLossError("the checksum is missing");
  }
  return earlier;
}

LostLines KeptLines::Read(absl::string_view text, const std::function<void(Message)>& use) {
  checked_ |= absl::StrContains(text, kBegin);
  LostLines lost;
  while (!text.empty()) {
    const size_t line_break = text.find('\n');
    const absl::string_view line = text.substr(0, line_break);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    absl::StatusOr<Envelope> envelope = Checked(line);
    if (!envelope.ok()) {
      // The line is torn, or only its line break is damaged.
      const bool last = line_break == absl::string_view::npos;
      if (last) envelope = Checked(line.substr(0, line.size() - 1));
      if (!envelope.ok()) {
        if (last) break;
        ++lost.damaged;
        ++damaged_;
        continue;
      }
    }
    const uint64_t sequence = envelope->sequence;
    const bool follows = last_sequence_ != 0 && sequence > last_sequence_;
    const uint64_t gap = follows ? sequence - last_sequence_ - 1 : 0;
    lost.missing += gap - std::min(gap, std::exchange(damaged_, 0));
    last_sequence_ = std::max(last_sequence_, sequence);
    use(std::move(envelope->message));
  }
  return lost;
}

}  // namespace trainyard::channel
