#include "common/json.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

// Builds the value of a text, event by event. The library's own builder that can be stopped walks
// through all members of an object whenever one of them ends.
template <typename Json>
class Builder final : public nlohmann::json_sax<Json> {
 public:
  using typename nlohmann::json_sax<Json>::binary_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::string_t;

  explicit Builder(bool unique_keys) : unique_keys_(unique_keys) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // A text has none.
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    if (unique_keys_ && open_.back()->contains(key)) return false;
    key_ = std::move(key);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  Json Take() { return std::move(root_); }

 private:
  Json* Place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    return &parent.emplace_back(std::move(value));
  }
  bool Add(Json value) { return Place(std::move(value)) != nullptr; }
  bool Open(Json value) {
    if (open_.size() >= kMaxJsonDepth) return false;
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const bool unique_keys_;
  Json root_;
  std::vector<Json*> open_;  // Only the last one grows, so none of these moves.
  std::string key_;          // Of the next value of an object.
};

template <typename Json>
Json Parse(absl::string_view text, bool unique_keys) {
  Builder<Json> builder(unique_keys);
  const bool whole = Json::sax_parse(text.begin(), text.end(), &builder);
  return whole ? builder.Take() : Json(Json::value_t::discarded);
}

}  // namespace

template <typename Json>
Json ParseJson(absl::string_view text) {
  return Parse<Json>(text, /*unique_keys=*/false);
}

nlohmann::json ParseUniqueJson(absl::string_view text) {
  return Parse<nlohmann::json>(text, /*unique_keys=*/true);
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
