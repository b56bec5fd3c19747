// The published runs of recipes/published: their table, and the specs made of it.

#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/files.h"

namespace trainyard::testing {

// A run of the table: its fields by the names of the head.
class PublishedRun {
 public:
  std::string& operator[](const std::string& column) { return fields_[column]; }
  const std::string& text(const std::string& column) const { return fields_.at(column); }
  bool has(const std::string& column) const { return !text(column).empty(); }
  double number(const std::string& column) const {
    double value = 0;
    CHECK(absl::SimpleAtod(text(column), &value)) << column << " of " << name();
    return value;
  }
  // What the last printed digit counts: 0.01 in "2.66".
  double unit(const std::string& column) const {
    const std::string& printed = text(column);
    double unit = 1;
    const size_t point = printed.find('.');
    if (point == std::string::npos) return unit;
    for (size_t i = point + 1; i < printed.size(); ++i) unit /= 10;
    return unit;
  }
  // The name of the run's spec, if it has one.
  std::string name() const {
    const std::string run =
        absl::StrCat(text("page"), "-", text("preset"), "-", text("precision"), "-", text("gpus"));
    return text("task") == "pretrain" ? run : absl::StrCat(run, "-", text("task"));
  }

 private:
  std::map<std::string, std::string> fields_;
};

// The text of a file of recipes/published.
inline std::string ReadPublished(const std::string& file) {
  const auto text =
      ReadFile(absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/recipes/published/", file));
  CHECK(text.ok()) << text.status();
  return *text;
}

inline std::vector<PublishedRun> PublishedRuns() {
  const std::string table = ReadPublished("table.csv");
  const std::vector<std::string> lines = absl::StrSplit(table, '\n', absl::SkipEmpty());
  const std::vector<std::string> head = absl::StrSplit(lines[0], ',');
  std::vector<PublishedRun> runs;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> fields = absl::StrSplit(lines[i], ',');
    CHECK(fields.size() == head.size()) << lines[i];
    PublishedRun& run = runs.emplace_back();
    for (size_t k = 0; k < head.size(); ++k) run[head[k]] = fields[k];
  }
  return runs;
}

}  // namespace trainyard::testing
