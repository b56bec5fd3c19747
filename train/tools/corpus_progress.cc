#include "train/tools/corpus_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"

namespace trainyard {
namespace {

constexpr absl::Duration kOnTerminal = absl::Milliseconds(200), kElsewhere = absl::Seconds(10);
constexpr char kTakeLine[] = "\r\x1b[K";

}  // namespace

void CorpusProgressPrinter::Show(const CorpusProgress& progress) {
  const absl::Duration now = clock_.Monotonic();
  if (!begin_bytes_) {
    begin_bytes_ = progress.bytes;
    begin_ = shown_ = now;
  }
  if (now - shown_ < (terminal_ ? kOnTerminal : kElsewhere)) return;
  shown_ = now;
  has_line_ = terminal_;
  out_ << (terminal_ ? kTakeLine : "") << Line(progress, now - begin_) << (terminal_ ? "" : "\n")
       << std::flush;
}

void CorpusProgressPrinter::End() {
  if (has_line_) out_ << kTakeLine << std::flush;
  has_line_ = false;
}

std::string CorpusProgressPrinter::Line(const CorpusProgress& progress,
                                        absl::Duration since_begin) const {
  const double all = double(std::max<int64_t>(1, progress.all_bytes));
  const double rate = double(progress.bytes - *begin_bytes_) / absl::ToDoubleSeconds(since_begin);
  std::string line =
      absl::StrCat(int(100 * double(progress.bytes) / all), "% of ", FormatBytes(all), "  ",
                   progress.documents, " documents  ", progress.tokens, " tokens");
  if (rate <= 0) return line;
  const double left = double(progress.all_bytes - progress.bytes) / rate;
  absl::StrAppend(&line, "  ", FormatBytes(rate), "/s  ",
                  absl::FormatDuration(absl::Ceil(absl::Seconds(left), absl::Seconds(1))), " left");
  return line;
}

}  // namespace trainyard
