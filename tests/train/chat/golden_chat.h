// Opens the small tokenizers of tests/golden/chat, which are those of tests/golden/tokenizers with
// the tokens of a format.

#pragma once

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/files.h"
#include "train/chat/choose_format.h"
#include "train/tokenizer/tokenizer_json.h"

namespace trainyard {

inline std::string GoldenFileText(const std::string& path) {
  const char* const source = std::getenv("TRAINYARD_SOURCE");
  const auto text =
      ReadFile(absl::StrCat(source == nullptr ? "." : source, "/tests/golden/", path));
  CHECK(text.ok()) << text.status();
  return *text;
}

struct GoldenChat {
  nlohmann::json file;
  std::string tokenizer_json;
  std::unique_ptr<Tokenizer> tokenizer;
  ChosenChatFormat chosen;
};

inline GoldenChat OpenGoldenChat(const std::string& format) {
  GoldenChat golden;
  golden.file = nlohmann::json::parse(GoldenFileText(absl::StrCat("chat/", format, ".json")));
  const std::string base = golden.file["tokenizer"];
  auto json = nlohmann::json::parse(GoldenFileText(absl::StrCat("tokenizers/", base, ".json")));
  for (const auto& token : golden.file["added_tokens"]) json["added_tokens"].push_back(token);
  golden.tokenizer_json = json.dump();
  auto tokenizer = ReadTokenizerJson(golden.tokenizer_json);
  CHECK(tokenizer.ok()) << tokenizer.status();
  golden.tokenizer = *std::move(tokenizer);
  golden.chosen.format = FindChatFormat(format);
  CHECK(golden.chosen.format != nullptr) << format;
  golden.chosen.settings = {.begin = golden.chosen.format->begin,
                            .end = golden.chosen.format->end,
                            .date = format == "llama3.2" ? "29 Nov 2026" : "2026-11-29"};
  return golden;
}

inline std::vector<std::string> GoldenConversations() {
  std::vector<std::string> lines =
      absl::StrSplit(GoldenFileText("chat/conversations.jsonl"), '\n', absl::SkipEmpty());
  return lines;
}

}  // namespace trainyard
