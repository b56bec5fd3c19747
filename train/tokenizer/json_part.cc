#include "train/tokenizer/json_part.h"

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/shown.h"

namespace trainyard {
namespace {

std::string ShownJson(const nlohmann::json& json) {
  constexpr size_t kShownJson = 60;
  if (json.is_structured() && json.size() > 3) {
    return absl::StrCat(json.is_array() ? "a list of " : "an object of ", json.size());
  }
  const std::string text = JsonText(json);
  return VisibleUtf8(text.size() > kShownJson ? absl::StrCat(CutUtf8(text, kShownJson), "...")
                                              : text);
}

}  // namespace

JsonPart::JsonPart(const nlohmann::json& json, std::string path)
    : json_(json), path_(std::move(path)) {
  if (!json.is_object()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(path_, ": wanted an object, found ", ShownJson(json)));
  }
}

std::string JsonPart::PathOf(const char* name) const {
  return path_.empty() ? name : absl::StrCat(path_, ".", name);
}

const nlohmann::json* JsonPart::Any(const char* name) {
  seen_.insert(name);
  if (!status_.ok()) return nullptr;
  const auto found = json_.find(name);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void JsonPart::Refuse(const char* name, absl::string_view wanted) {
  if (!status_.ok()) return;
  const auto found = json_.find(name);
  status_ =
      absl::InvalidArgumentError(absl::StrCat(PathOf(name), ": wanted ", wanted, ", found ",
                                              found == json_.end() ? "none" : ShownJson(*found)));
}

std::string JsonPart::Text(const char* name, std::optional<std::string> if_absent) {
  const nlohmann::json* const value = Any(name);
  if (value == nullptr && if_absent) return *if_absent;
  if (value == nullptr || !value->is_string()) {
    Refuse(name, "a text");
    return "";
  }
  return value->get<std::string>();
}

bool JsonPart::Flag(const char* name, std::optional<bool> if_absent) {
  const nlohmann::json* const value = Any(name);
  if (value == nullptr && if_absent) return *if_absent;
  if (value == nullptr || !value->is_boolean()) {
    Refuse(name, "true or false");
    return false;
  }
  return value->get<bool>();
}

int64_t JsonPart::Whole(const char* name, std::optional<int64_t> if_absent) {
  const nlohmann::json* const value = Any(name);
  if (value == nullptr && if_absent) return *if_absent;
  int64_t number = 0;
  if (value == nullptr || !ReadInteger(*value, number)) Refuse(name, "a whole number");
  return number;
}

const nlohmann::json* JsonPart::List(const char* name) {
  const nlohmann::json* const value = Any(name);
  if (value == nullptr || value->is_array()) return value;
  Refuse(name, "a list");
  return nullptr;
}

const nlohmann::json* JsonPart::Object(const char* name) {
  const nlohmann::json* const value = Any(name);
  if (value == nullptr || value->is_object()) return value;
  Refuse(name, "an object");
  return nullptr;
}

absl::Status JsonPart::Done() {
  if (!status_.ok()) return status_;
  for (const auto& [name, value] : json_.items()) {
    if (seen_.count(name) > 0) continue;
    Refuse(name.c_str(), "no field that changes ids in a way that is not known here");
    return status_;
  }
  return absl::OkStatus();
}

}  // namespace trainyard
