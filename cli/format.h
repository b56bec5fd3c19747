// Formats numbers and times for people.

#pragma once

#include <google/protobuf/generated_enum_reflection.h>
#include <google/protobuf/timestamp.pb.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::cli {

std::string FormatCount(double count);               // 950, 12.3k, 1.24M, 8.03G
std::string FormatSeconds(double seconds);           // 0.3s, 42s, 1m20s, 3h05m, 2d04h
std::string FormatPercent(double ratio);             // 34.5%
std::string FormatNumber(double value, int digits);  // Significant digits: 1.2345
std::string FormatTimestamp(
    const google::protobuf::Timestamp& timestamp);  // RFC 3339, UTC; empty for 0.
absl::Time ToTime(const google::protobuf::Timestamp& timestamp);

// Returns the value's name without the prefix: RUNNING for JOB_STATE_RUNNING with JOB_STATE_. If
// the value comes from a newer controller and has no name here, returns its number.
template <typename Enum>
std::string ShortName(Enum value, absl::string_view prefix) {
  const auto* known = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return known == nullptr ? absl::StrCat(int(value))
                          : std::string(absl::StripPrefix(known->name(), prefix));
}
std::string RoleName(v1::Role role);  // Returns "submitter" for ROLE_SUBMITTER.

}  // namespace trainyard::cli
