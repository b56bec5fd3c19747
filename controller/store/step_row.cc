#include "controller/store/step_row.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "controller/store/row_checksum.h"

namespace trainyard::controller {
namespace {

using nlohmann::json;

constexpr char kGenerated[] = "generated";  // A list of pairs, [prompt, text].

const std::vector<std::string>& Columns() {
  static const std::vector<std::string> columns =
      absl::StrSplit(absl::StrCat(kStepColumns, ", numbers"), ", ");
  return columns;
}

// Returns the column's index in a row of SelectSteps(). -1: there is no such column.
int FindColumn(absl::string_view name) {
  const auto found = std::find(Columns().begin(), Columns().end(), name);
  return found == Columns().end() ? -1 : int(found - Columns().begin());
}
int ColumnOf(absl::string_view name) {
  const int column = FindColumn(name);
  CHECK(column >= 0) << "steps has no column " << name;
  return column;
}

// Binds values by the names of their columns. Parameter 1 is the job's number.
class Binder {
 public:
  explicit Binder(Statement& insert) : insert_(insert) {}

  void operator()(absl::string_view column, int64_t value) { insert_.Bind(At(column), value); }
  void operator()(absl::string_view column, double value) { insert_.Bind(At(column), value); }
  void operator()(absl::string_view column, const std::optional<double>& value) {
    value ? insert_.Bind(At(column), *value) : insert_.BindNull(At(column));
  }
  void Text(absl::string_view column, const std::string& text) {
    text.empty() ? insert_.BindNull(At(column)) : insert_.BindText(At(column), text);
  }
  void Blob(absl::string_view column, const std::string& bytes) {
    insert_.BindBlob(At(column), bytes);
  }

 private:
  static int At(absl::string_view column) { return ColumnOf(column) + 2; }
  Statement& insert_;
};

// Writes null for NaN, which JSON lacks.
void Put(json& numbers, const std::string& name, const std::optional<double>& value) {
  if (value) numbers[name] = std::isfinite(*value) ? json(*value) : json(nullptr);
}

// `number` has any type of StepNumbers.
void Get(const json& value, auto& number) {
  number = value.is_number() ? value.get<double>() : std::nan("");
}
void Get(const Statement& row, int column, auto& number) {
  if (!IsOptional<decltype(number)> || !row.IsNull(column)) number = row.Real(column);
}

}  // namespace

std::string InsertStep() {
  std::string before = "?1";
  for (size_t i = 0; i + 1 < Columns().size(); ++i) absl::StrAppend(&before, ", ?", i + 2);
  const std::string numbers = absl::StrCat("?", Columns().size() + 1);
  // The checksum is StepChecksum() of the parameters.
  return absl::StrCat("INSERT OR REPLACE INTO steps (number, ", absl::StrJoin(Columns(), ", "),
                      ", checksum) VALUES (", before, ", ", numbers, ", CASE WHEN ", numbers,
                      " IS NULL THEN row_checksum(", before, ") ELSE row_checksum(", before, ", ",
                      numbers, ") END)");
}

void BindStep(Statement& insert, uint64_t job, const JobStep& r) {
  Binder bind(insert);
  insert.Bind(1, int64_t(job));
  bind("step", int64_t(r.step)), bind("epoch", int64_t(r.epoch.value_or(0)));
  bind("complete", int64_t(r.complete)), bind("skipped", int64_t(r.skipped));
  bind("tokens", int64_t(r.tokens)), bind("seconds", r.seconds);
  json numbers;
  for (const auto& [name, phase] : kPhases) {
    if (FindColumn(name) >= 0) {
      bind(name, r.phases.*phase);
    } else if (r.phases.*phase != 0) {  // Most steps do without, and have short rows.
      Put(numbers, name, r.phases.*phase);
    }
  }
  bind("finish_time", absl::ToUnixMicros(r.finish_time)), bind("model_flops", r.model_flops);
  bind.Blob("ranks_seen", r.ranks_seen);
  bind.Text("gpu_throttle_reasons", absl::StrJoin(r.gpu.throttle_reasons, ","));
  const auto put = [&](const std::string& name, const std::optional<double>& number) {
    FindColumn(name) >= 0 ? bind(name, number) : Put(numbers, name, number);
  };
  for (const GpuNumber& row : kGpuNumbers) put(absl::StrCat("gpu_", row.name), r.gpu.*row.value);
  ForEachNumber(r, [&](const StepNumber& row, const auto& number) { put(row.name, number); });
  for (const GeneratedText& text : r.generated) {
    numbers[kGenerated].push_back({text.prompt, text.text});
  }
  bind.Text("numbers", numbers.is_null() ? "" : JsonText(numbers));
}

std::string SelectSteps() {
  return absl::StrCat("SELECT ", absl::StrJoin(Columns(), ", "), ", ", StepIsGood(),
                      " FROM steps ");
}

absl::StatusOr<JobStep> StepOf(const Statement& row, uint64_t job) {
  if (row.Int(int(Columns().size())) == 0) return DamagedRow("steps", job);
  const auto whole = [&](const char* column) { return row.Int(ColumnOf(column)); };
  const auto get = [&](const char* column, auto& number) { Get(row, ColumnOf(column), number); };
  JobStep r;
  r.step = uint64_t(whole("step")), r.epoch = uint64_t(whole("epoch"));
  r.complete = whole("complete") != 0, r.skipped = whole("skipped") != 0;
  r.tokens = uint64_t(whole("tokens"));
  get("seconds", r.seconds), get("model_flops", r.model_flops);
  const json numbers = ParseJson(row.Text(ColumnOf("numbers")));
  const auto take = [&](const std::string& name, auto& number) {
    const int column = FindColumn(name);
    if (column >= 0) return Get(row, column, number);
    if (numbers.is_object() && numbers.contains(name)) Get(numbers[name], number);
  };
  for (const auto& [name, phase] : kPhases) take(name, r.phases.*phase);
  r.finish_time = absl::FromUnixMicros(whole("finish_time"));
  r.ranks_seen = row.Text(ColumnOf("ranks_seen"));
  for (const GpuNumber& gpu : kGpuNumbers) {
    take(absl::StrCat("gpu_", gpu.name), r.gpu.*gpu.value);
  }
  const int reasons = ColumnOf("gpu_throttle_reasons");
  if (!row.IsNull(reasons)) r.gpu.throttle_reasons = absl::StrSplit(row.Text(reasons), ',');
  ForEachNumber(r, [&](const StepNumber& name, auto& number) { take(name.name, number); });
  if (!numbers.is_object() || !numbers.contains(kGenerated)) return r;
  for (const json& text : numbers[kGenerated]) r.generated.push_back({text[0], text[1]});
  return r;
}

}  // namespace trainyard::controller
