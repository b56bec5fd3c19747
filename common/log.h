// Log lines are events with key=value on standard error, one line for each event:
//
//   2026-11-21T09:15:02.123Z info job_placed job=j-7f3a epoch=2 ranks=8
//
//   LogInfo("job_placed", {{"job", id}, {"epoch", epoch}});
//
// An error is logged once, where it is handled. Thread-safe: one call writes one whole line.

#pragma once

#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainyard {

struct LogField {
  template <typename T>
  LogField(absl::string_view key, const T& value) : key(key), value(absl::StrCat(value)) {}
  std::string key;
  std::string value;  // Quoted and escaped if a character is not visible ASCII, or is " or =.
};

void LogInfo(absl::string_view event, std::initializer_list<LogField> fields = {});
void LogWarning(absl::string_view event, std::initializer_list<LogField> fields = {});
void LogError(absl::string_view event, std::initializer_list<LogField> fields = {});

}  // namespace trainyard
