#include "common/python_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace trainyard {
namespace {

constexpr char kFloat[] = "__float__";
constexpr char kMark = '\x01';  // Begins a text that stands for a bare word.

void MarkBareWords(nlohmann::json& json) {
  if (json.is_object() && json.size() == 1 && json.contains(kFloat) && json[kFloat].is_string()) {
    json = absl::StrCat(std::string(1, kMark), json[kFloat].get<std::string>());
  } else if (json.is_structured()) {
    for (nlohmann::json& value : json) MarkBareWords(value);
  }
}

}  // namespace

std::string DumpPythonJson(const nlohmann::json& json, int indent) {
  nlohmann::json marked = json;
  MarkBareWords(marked);
  return absl::StrReplaceAll(
      marked.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace),
      {{R"("\u0001Infinity")", "Infinity"},
       {R"("\u0001-Infinity")", "-Infinity"},
       {R"("\u0001NaN")", "NaN"}});
}

}  // namespace trainyard
