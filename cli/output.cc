#include "cli/output.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/errors.h"
#include "common/files.h"
#include "common/text.h"

namespace trainyard::cli {
namespace {

// Names and output of jobs may have been made by anybody.
std::string Harmless(absl::string_view text) { return VisibleUtf8(ValidUtf8(text)); }

// A cell is one line, but texts of programs may have line breaks.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string Pad(const std::string& text, size_t width, bool right) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

}  // namespace

absl::Status Output::SetFormat(absl::string_view name) {
  if (name == "table") {
    format_ = Format::kTable;
  } else if (name == "json") {
    format_ = Format::kJson;
  } else if (name == "jsonl") {
    format_ = Format::kJsonLines;
  } else {
    return UsageError(absl::StrCat("--output: wanted table, json or jsonl, found '", name, "'"));
  }
  return absl::OkStatus();
}

void Output::Write(absl::string_view text) {
  errno = 0;
  out_ << text << std::flush;
  if (!out_ && write_error_ == 0) write_error_ = errno != 0 ? errno : EIO;
}

absl::Status Output::Written() const {
  return write_error_ == 0 ? absl::OkStatus()
                           : ErrnoStatus(write_error_, "write", "standard output");
}

void Output::EndLiveLine() {
  if (live_line_) Write("\n");
  live_line_ = false;
}

void Output::Line(absl::string_view text) { Text(absl::StrCat(text, "\n")); }

void Output::Text(absl::string_view text) {
  EndLiveLine();
  Write(terminal_.live ? Harmless(text) : std::string(text));
}

void Output::Table(const std::vector<Column>& columns,
                   const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns.size(); ++i) {
    widths.push_back(columns[i].head.size());
    for (const auto& row : rows) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto join = [&](const std::function<std::string(size_t)>& cell) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      absl::StrAppend(&line, i == 0 ? "" : "  ", Pad(cell(i), widths[i], columns[i].right));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  };
  const std::string head = join([&](size_t i) { return columns[i].head; });
  EndLiveLine();
  Write(
      absl::StrCat(terminal_.colour ? "\x1b[1m" : "", head, terminal_.colour ? "\x1b[0m\n" : "\n"));
  for (const auto& row : rows) Line(join([&](size_t i) { return OneLine(row[i]); }));
}

void Output::Note(absl::string_view text) {
  if (quiet_) return;
  EndLiveLine();
  err_ << Harmless(text) << '\n' << std::flush;
}

void Output::Error(absl::string_view text) {
  EndLiveLine();
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    err_ << (terminal_.colour ? "\x1b[31merror:\x1b[0m " : "error: ") << Harmless(line) << '\n';
  }
  err_ << std::flush;
}

void Output::LiveLine(absl::string_view text) {
  // A line that wraps could not be rewritten.
  const size_t room = size_t(std::max(terminal_.columns - 1, 10));
  Write(absl::StrCat("\r", Harmless(text).substr(0, room), "\x1b[K"));
  live_line_ = true;
}

}  // namespace trainyard::cli
