#include "common/json.h"

namespace trainyard {

nlohmann::json ParseJson(absl::string_view text) {
  using Json = nlohmann::json;
  bool deep = false;
  const auto look = [&](int around, Json::parse_event_t event, const Json&) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    deep = deep || (opens && around >= kMaxJsonDepth);
    return !deep;  // What is beyond is not kept.
  };
  Json json = Json::parse(text.begin(), text.end(), look, /*allow_exceptions=*/false);
  return deep ? Json(Json::value_t::discarded) : json;
}

}  // namespace trainyard
