#include "train/hf/special_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/json.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

Json ParseFile(const KeptFiles& files, const char* name) {
  const auto found = files.find(name);
  if (found == files.end()) return Json::object();
  Json json = ParseUniqueJson(found->second).value_or(Json());
  return json.is_object() ? json : Json::object();
}

// Returns the id of the token that tokenizer_config.json has under the key; null if nobody knows.
Json IdOf(const Json& config, const Json& tokenizer, const char* key) {
  Json token = config.value(key, Json());
  if (token.is_object()) token = token.value("content", Json());
  if (!token.is_string()) return nullptr;
  const Json added = tokenizer.value("added_tokens", Json());
  for (const Json& one : added.is_array() ? added : Json::array()) {
    if (one.is_object() && one.value("content", Json()) == token) return one.value("id", Json());
  }
  // Of tokenizers without a tokenizer.json: {"2": {"content": "</s>", ...}, ...}.
  Json decoder = config.value("added_tokens_decoder", Json());
  if (!decoder.is_object()) decoder = Json::object();
  for (const auto& [id, one] : decoder.items()) {
    int64_t number = 0;
    if (one.is_object() && one.value("content", Json()) == token && absl::SimpleAtoi(id, &number)) {
      return number;
    }
  }
  const Json model = tokenizer.value("model", Json());
  const Json vocabulary = model.is_object() ? model.value("vocab", Json()) : Json();
  return vocabulary.is_object() ? vocabulary.value(token.get<std::string>(), Json()) : Json();
}

}  // namespace

void SetSpecialTokens(const KeptFiles& tokenizer, const KeptFiles* imported, bool padding,
                      Json& object) {
  const Json config = ParseFile(tokenizer, "tokenizer_config.json");
  const Json vocabulary = ParseFile(tokenizer, "tokenizer.json");
  const Json theirs =
      imported != nullptr ? ParseFile(*imported, "tokenizer_config.json") : Json::object();
  const auto set = [&](const char* id, const char* token) {
    if (!object.contains(id)) return;
    Json& present = object[id];
    Json own = IdOf(config, vocabulary, token);
    if (imported != nullptr) {
      if (own.is_null() || own == IdOf(theirs, vocabulary, token)) return;
      // Several tokens may end texts.
      if (present.is_array() && std::count(present.begin(), present.end(), own) > 0) return;
    }
    present = std::move(own);
  };
  set("bos_token_id", "bos_token");
  set("eos_token_id", "eos_token");
  if (padding) set("pad_token_id", "pad_token");
}

std::string WithSpecialTokens(const KeptFiles& tokenizer, const KeptFiles* imported,
                              const std::string& generation_config) {
  Json json = ParseUniqueJson(generation_config).value_or(Json());
  if (!json.is_object()) return generation_config;
  SetSpecialTokens(tokenizer, imported, /*padding=*/true, json);
  return JsonText(json, 2) + "\n";
}

}  // namespace trainyard
