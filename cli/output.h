// The output of a command: tables for people, JSON for programs. Decoration (bold heads, a live
// line) appears only on a terminal. Not thread-safe.

#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::cli {

enum class Format { kTable, kJson, kJsonLines };

struct Terminal {
  bool live = false;    // Standard output is a terminal: a line may be rewritten.
  bool colour = false;  // Standard output is a terminal, and NO_COLOR is not set.
  bool utf8 = false;    // The locale's encoding is UTF-8.
  int columns = 80;
};

struct Column {
  std::string head;
  bool right = false;  // Aligned to the right, for numbers.
};

class Output {
 public:
  Output(std::ostream& out, std::ostream& err, Terminal terminal)
      : out_(out), err_(err), terminal_(terminal) {}

  absl::Status SetFormat(absl::string_view name);  // table, json or jsonl; otherwise a usage error.
  void SetQuiet() { quiet_ = true; }

  Format format() const { return format_; }
  bool quiet() const { return quiet_; }
  const Terminal& terminal() const { return terminal_; }

  void Line(absl::string_view text);  // Writes one line of the answer.
  // Writes the text unchanged; on a terminal without what a terminal would obey, as in all others.
  void Text(absl::string_view text);
  void Table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows);
  void Note(absl::string_view text);  // For people, on standard error; nothing if quiet.
  // Writes "error: ..." on standard error for each line of the text.
  void Error(absl::string_view text);

  // Writes one line that is rewritten in place. Line() and Note() end it. Only if terminal().live.
  void LiveLine(absl::string_view text);

  // OK: all of the answer could be written so far. An incomplete answer is a failed command.
  absl::Status Written() const;

 private:
  void Write(absl::string_view text);
  void EndLiveLine();

  std::ostream& out_;
  std::ostream& err_;
  const Terminal terminal_;
  Format format_ = Format::kTable;
  bool quiet_ = false;
  bool live_line_ = false;
  int write_error_ = 0;  // errno of the first failed write of the answer.
};

}  // namespace trainyard::cli
