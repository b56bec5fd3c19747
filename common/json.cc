#include "common/json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/shown.h"
#include "common/text.h"

namespace trainyard {
namespace {

// Goes through a text, and tells how far a reader has come: nlohmann::json says so in the event of
// a syntax error alone.
class Cursor {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  // The reader that begins at `at` writes to `read` how many characters it has taken.
  explicit Cursor(const char* at, size_t* read = nullptr) : at_(at), read_(read) {}
  const char& operator*() const { return *at_; }
  Cursor& operator++() {
    ++at_;
    ++*read_;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  size_t* read_;
};

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

  // `rewritten`: errors quote nothing of the text, which has the lines of a user's text, but not
  // all of its words. `read`: how many characters have been read; null: keys need not be unique.
  Builder(absl::string_view text, const size_t* read, bool rewritten = false)
      : text_(text), read_(read), rewritten_(rewritten) {}

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
    if (read_ != nullptr && open_.back()->contains(key)) {
      return Refuse("the key ", Shown(key), " twice", InLine(", the second time", *read_));
    }
    key_ = std::move(key);
    return true;
  }
  // `end` is the number of bytes up to and with the first one that no JSON has there.
  bool parse_error(size_t end, const std::string& last,
                   const nlohmann::detail::exception& error) override {
    if (text_.empty()) return Refuse("an empty text");
    if (end > text_.size()) return Refuse("a text that ends within a value");
    const bool too_large = dynamic_cast<const Json::out_of_range*>(&error) != nullptr;
    return Refuse(too_large ? "a number that is too large" : "something else",
                  rewritten_ ? "" : absl::StrCat(", ", Shown(ValidUtf8(last))),
                  InLine(rewritten_ ? "" : ",", end));
  }

  Json Take() { return std::move(root_); }
  const std::string& refusal() const { return refusal_; }

 private:
  // Returns in which line the last of the text's first `end` characters is, with `before` before
  // it. Returns "" for a text of one line.
  std::string InLine(absl::string_view before, size_t end) const {
    if (!absl::StrContains(text_, '\n')) return "";
    const auto breaks = std::count(text_.begin(), text_.begin() + std::ptrdiff_t(end), '\n');
    const bool at_break = end > 0 && text_[end - 1] == '\n';
    return absl::StrCat(before, " in line ", breaks + (at_break ? 0 : 1));
  }
  template <typename... Parts>
  bool Refuse(const Parts&... parts) {
    refusal_ = absl::StrCat(parts...);
    return false;
  }
  Json* Place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    return &parent.emplace_back(std::move(value));
  }
  bool Add(Json value) { return Place(std::move(value)) != nullptr; }
  bool Open(Json value) {
    if (open_.size() >= kMaxJsonDepth) return Refuse("more than ", kMaxJsonDepth, " levels");
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const absl::string_view text_;
  const size_t* const read_;
  const bool rewritten_;
  std::string refusal_;  // What was found, in place of JSON.
  Json root_;
  std::vector<Json*> open_;  // Only the last one grows, so none of these moves.
  std::string key_;          // Of the next value of an object.
};

absl::StatusOr<nlohmann::json> ParseUnique(absl::string_view text, bool rewritten) {
  size_t read = 0;
  Builder<nlohmann::json> builder(text, &read, rewritten);
  const Cursor begin(text.data(), &read), end(text.data() + text.size());
  if (nlohmann::json::sax_parse(begin, end, &builder)) return builder.Take();
  return absl::DataLossError(absl::StrCat("wanted JSON, found ", builder.refusal()));
}

}  // namespace

template <typename Json>
Json ParseJson(absl::string_view text) {
  Builder<Json> builder(text, nullptr);
  const bool whole = Json::sax_parse(text.begin(), text.end(), &builder);
  return whole ? builder.Take() : Json(Json::value_t::discarded);
}

absl::StatusOr<nlohmann::json> ParseUniqueJson(absl::string_view text) {
  return ParseUnique(text, /*rewritten=*/false);
}

absl::StatusOr<nlohmann::json> ParsePythonJson(absl::string_view text) {
  static constexpr absl::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  std::string json;
  bool in_string = false, rewritten = false;
  for (size_t taken = 0; !text.empty(); text.remove_prefix(taken)) {
    const auto* const word =
        std::find_if(std::begin(kWords), std::end(kWords),
                     [&](absl::string_view name) { return absl::StartsWith(text, name); });
    if (!in_string && word != std::end(kWords)) {
      taken = word->size();
      rewritten = true;
      absl::StrAppend(&json, R"({"__float__":")", *word, R"("})");
      continue;
    }
    if (text[0] == '"') in_string = !in_string;
    taken = std::min<size_t>(in_string && text[0] == '\\' ? 2 : 1, text.size());
    absl::StrAppend(&json, text.substr(0, taken));
  }
  return ParseUnique(json, rewritten);
}

template <typename Json>
std::string JsonText(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

template nlohmann::json ParseJson(absl::string_view text);
template nlohmann::ordered_json ParseJson(absl::string_view text);
template std::string JsonText(const nlohmann::json& value, int indent);
template std::string JsonText(const nlohmann::ordered_json& value, int indent);

}  // namespace trainyard
