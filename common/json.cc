#include "common/json.h"

namespace trainyard {

template <typename Json>
Json ParseJson(absl::string_view text) {
  bool deep = false;
  const auto look = [&](int around, Json::parse_event_t event, const Json&) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    deep = deep || (opens && around >= kMaxJsonDepth);
    return !deep;  // Deeper values are dropped.
  };
  Json json = Json::parse(text.begin(), text.end(), look, /*allow_exceptions=*/false);
  return deep ? Json(Json::value_t::discarded) : json;
}

template nlohmann::json ParseJson(absl::string_view text);
template nlohmann::ordered_json ParseJson(absl::string_view text);

}  // namespace trainyard
