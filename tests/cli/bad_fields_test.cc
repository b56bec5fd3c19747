// Proves for each field of each family that a bad value in a spec is answered by the field's name,
// what was found and, for a whole number beyond its limits, a nearest value that is legal: values
// of other types, below and above the limits, and such that do not divide. Nothing here names a
// family or a field, so that a new one is covered by itself.

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/message_json.h"
#include "cli/spec.h"
#include "gtest/gtest.h"
#include "models/arch/config_json.h"
#include "models/arch/registry.h"
#include "train/config/validate.h"

namespace trainyard::cli {
namespace {

// A value as YAML, and whether no field of its kind can have it.
struct Bad {
  std::string text;
  bool never = false;
};

// Values of other types than the field's.
std::vector<Bad> OfOtherTypes(const Field& field) {
  std::vector<Bad> bad = {{"[1]", true}, {"{a: 1}", true}, {"x y", true}, {"''", true}};
  const bool number = !std::holds_alternative<bool>(field.value) && field.choices.empty();
  for (const char* text : {"true", ".nan", ".inf", "1e400", "0x10", "1e-320"}) {
    if (number) bad.push_back({text, true});
  }
  if (std::holds_alternative<int64_t>(field.value)) bad.push_back({"1.5", true});
  for (const char* text : {"2", "0", "yes please"}) {
    if (!number) bad.push_back({text, true});
  }
  return bad;
}

std::vector<Bad> BadValues(const Field& field) {
  std::vector<Bad> bad = OfOtherTypes(field);
  if (const auto* const integer = std::get_if<int64_t>(&field.value)) {
    const auto add = [&](int64_t value, bool never = false) {
      bad.push_back({absl::StrCat(value), never});
    };
    add(-1, field.rule.whole.least > -1);
    add(field.rule.whole.least - 1, true);
    add(field.rule.whole.most + 1);  // The limit may be that of another field.
    for (const int64_t value : {int64_t{0}, int64_t{7}, *integer + 1, 3 * *integer + 1}) add(value);
    add(int64_t{1} << 32, true);
    add(std::numeric_limits<int64_t>::max(), true);
    bad.push_back({"9223372036854775808", true});
    bad.push_back({"1e30", true});
  } else if (std::holds_alternative<double>(field.value)) {
    bad.push_back({"-1", true});
    for (const char* text : {"0", "1e-30", "0.3", "1e30", "1e300"}) bad.push_back({text, false});
  }
  return bad;
}

// A legal spec with the family's first preset as an architecture.
std::string SpecOf(const Family& family) {
  const ModelConfig& config = family.presets.front().config;
  const bool text = FactsOf(config).vocab > 0;
  const nlohmann::ordered_json spec = {
      {"name", "a"},
      {"model", {{"architecture", ToJson(config)}}},
      {"batch", {{"global", 8}, {"micro", 1}, {"sequence", text ? 64 : 256}}},
      {"data",
       text ? nlohmann::ordered_json{{"synthetic", nlohmann::ordered_json::object()}}
            : nlohmann::ordered_json{{"arrays", {{"latents", "x.npy"}, {"labels", "y.npy"}}}}},
      {"optimizer", {{"adamw", {{"learning_rate", 1e-4}}}}},
      {"steps", 10}};
  return spec.dump();
}

// What `submit` prints about the spec with this change: a line for each violation, which it or the
// controller has found.
std::vector<std::string> Errors(const std::string& spec, const std::string& set) {
  const auto document = SpecDocument::Parse("s.yaml", spec, {set});
  if (!document.ok()) return {std::string(document.status().message())};
  const auto message = document->ToProto();
  const absl::Status status =
      message.ok() ? ParseAndValidateJob(ProtobufJson(*message)).status() : message.status();
  if (status.ok()) return {};
  return absl::StrSplit(document->Explain(status).message(), '\n');
}

// The first line about the field itself; "" if there is none.
std::string OwnLine(const std::string& name, const std::vector<std::string>& errors) {
  for (const std::string& line : errors) {
    if (absl::StrContains(line, absl::StrCat(": model.architecture.", name, ": "))) return line;
  }
  return "";
}

// The same, or else the first line about a field that this one has made wrong: it names this one,
// or is of the same group.
std::string LineAbout(const std::string& name, const std::vector<std::string>& errors) {
  const std::string own = OwnLine(name, errors);
  if (!own.empty()) return own;
  const size_t dot = name.find('.');
  const std::string named = absl::StrCat(name.substr(dot + 1), " = ");
  const std::string group = absl::StrCat(": model.architecture.", name.substr(0, dot), ".");
  for (const std::string& line : errors) {
    const bool of_group = dot != name.npos && absl::StrContains(line, group);
    if (of_group || absl::StrContains(line, named)) return line;
  }
  return "";
}

std::string NearestIn(const std::string& line) {
  const size_t at = line.find("; nearest ");
  return at == line.npos ? "" : line.substr(at + 10);
}

// Follows the advice of `line`: the value of the field's own limits first, and then one that goes
// with the others.
void ExpectAdviceLeadsToALegalValue(const std::string& spec, const std::string& name,
                                    std::string line) {
  constexpr int kMostSteps = 3;
  for (int step = 0; step < kMostSteps && !NearestIn(line).empty(); ++step) {
    const std::string set = absl::StrCat("model.architecture.", name, "=", NearestIn(line));
    line = OwnLine(name, Errors(spec, set));
  }
  EXPECT_EQ(line, "") << "where advice has led";
}

// Checks the answer to one value. Returns whether the value was legal.
bool ExpectAnswer(const std::string& spec, const Field& field, const Bad& bad) {
  const std::string name = field.rule.name;
  const std::vector<std::string> errors =
      Errors(spec, absl::StrCat("model.architecture.", name, "=", bad.text));
  if (errors.empty()) {
    EXPECT_FALSE(bad.never) << "it was accepted";
    return true;
  }
  const std::string line = LineAbout(name, errors);
  EXPECT_FALSE(line.empty()) << absl::StrJoin(errors, "\n");
  EXPECT_TRUE(absl::StrContains(line, "wanted ")) << line;
  EXPECT_TRUE(absl::StrContains(line, "found ")) << line;
  const bool integer = std::holds_alternative<int64_t>(field.value);
  const std::string own = OwnLine(name, errors);
  if (integer && !NearestIn(own).empty()) ExpectAdviceLeadsToALegalValue(spec, name, own);
  return false;
}

class BadFields : public ::testing::TestWithParam<std::string> {};

TEST_P(BadFields, AreRefusedByNameValueAndNearestLegalValue) {
  const Family& family = *FindFamily(GetParam());
  const std::string spec = SpecOf(family);
  ASSERT_EQ(Errors(spec, "name=b"), std::vector<std::string>()) << spec;
  for (const Field& field : FieldsOf(family.presets.front().config)) {
    int legal = 0, values = 0;
    for (const Bad& bad : BadValues(field)) {
      SCOPED_TRACE(absl::StrCat(field.rule.name, " = ", bad.text));
      legal += ExpectAnswer(spec, field, bad);
      ++values;
    }
    EXPECT_LT(legal, values) << field.rule.name << " takes anything";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, BadFields, ::testing::ValuesIn(FamilyNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::cli
