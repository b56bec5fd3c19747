#include "common/json.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

// Parses, and calls refuses(event, value) for each event of the parser until it returns true.
template <typename Json, typename Refuses>
Json Parse(absl::string_view text, Refuses&& refuses) {
  bool refused = false;
  const auto look = [&](int around, Json::parse_event_t event, const Json& value) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    refused = refused || (opens && around >= kMaxJsonDepth) || refuses(event, value);
    return !refused;  // What follows is dropped.
  };
  Json json = Json::parse(text.begin(), text.end(), look, /*allow_exceptions=*/false);
  return refused ? Json(Json::value_t::discarded) : json;
}

}  // namespace

template <typename Json>
Json ParseJson(absl::string_view text) {
  return Parse<Json>(text, [](auto, const Json&) { return false; });
}

nlohmann::json ParseUniqueJson(absl::string_view text) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // Of the objects that are open.
  return Parse<nlohmann::json>(text, [&](Event event, const nlohmann::json& value) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    return event == Event::key && !keys.back().insert(value.get<std::string>()).second;
  });
}

nlohmann::json ParsePythonJson(absl::string_view text) {
  static constexpr absl::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  std::string json;
  bool in_string = false;
  for (size_t taken = 0; !text.empty(); text.remove_prefix(taken)) {
    const auto* const word =
        std::find_if(std::begin(kWords), std::end(kWords),
                     [&](absl::string_view name) { return absl::StartsWith(text, name); });
    if (!in_string && word != std::end(kWords)) {
      taken = word->size();
      absl::StrAppend(&json, R"({"__float__":")", *word, R"("})");
      continue;
    }
    if (text[0] == '"') in_string = !in_string;
    taken = std::min<size_t>(in_string && text[0] == '\\' ? 2 : 1, text.size());
    absl::StrAppend(&json, text.substr(0, taken));
  }
  return ParseUniqueJson(json);
}

template nlohmann::json ParseJson(absl::string_view text);
template nlohmann::ordered_json ParseJson(absl::string_view text);

}  // namespace trainyard
