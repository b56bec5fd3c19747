// Chats and pairs of answers in a service's directory, with a tokenizer of 29 tokens: letters, and
// the words of the format chatml.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {

// What a spec's `data` says of them, without braces. Half of the conversations have two answers.
inline constexpr char kTinyChats[] =
    "chat: {path: chats.jsonl, tokenizer: tokenizer.json, format: chatml}";
inline constexpr char kTinyPairs[] =
    "chat: {path: pairs.jsonl, tokenizer: tokenizer.json, format: chatml}";

// A tokenizer.json of the words of chatml and the first letters of the alphabet. Another letter is
// the last of them.
inline std::string TinyTokenizer(int letters = 24) {
  nlohmann::json tokenizer = {{"version", "1.0"}, {"added_tokens", nlohmann::json::array()}};
  nlohmann::json vocabulary = nlohmann::json::object();
  const auto add = [&](const std::string& token, bool added) {
    const size_t id = vocabulary.size();
    vocabulary[token] = id;
    if (!added) return;
    tokenizer["added_tokens"].push_back({{"id", id},
                                         {"content", token},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", token.front() == '<'}});
  };
  for (const char* token : {"user", "assistant", "<|im_start|>", "<|im_end|>"}) add(token, true);
  add("\n", false);
  for (int i = 0; i < letters; ++i) add(std::string(1, char('a' + i)), false);
  for (const char* step : {"normalizer", "pre_tokenizer", "post_processor"}) {
    tokenizer[step] = nullptr;
  }
  tokenizer["decoder"] = {{"type", "Fuse"}};
  tokenizer["model"] = {{"type", "BPE"},
                        {"vocab", vocabulary},
                        {"unk_token", std::string(1, char('a' + letters - 1))},
                        {"merges", nlohmann::json::array()},
                        {"fuse_unk", false},
                        {"byte_fallback", false}};
  return tokenizer.dump();
}

inline void WriteTinyChats(Service& service) {
  const auto text = [](int number, int seed) {
    std::string letters;
    for (int i = 0; i <= number * seed % 5; ++i) letters += char('a' + (number + i * seed) % 24);
    return letters;
  };
  const auto message = [](const char* role, const std::string& content) {
    return nlohmann::json{{"role", role}, {"content", content}};
  };
  std::string chats, pairs;
  for (int i = 0; i < 60; ++i) {
    nlohmann::json messages = {message("user", text(i, 3)), message("assistant", text(i, 7))};
    if (i % 2 == 0) {
      messages.push_back(message("user", text(i, 5)));
      messages.push_back(message("assistant", text(i, 11)));
    }
    absl::StrAppend(&chats, nlohmann::json{{"messages", messages}}.dump(), "\n");
    const nlohmann::json pair = {
        {"prompt", text(i, 3)}, {"chosen", text(i, 7)}, {"rejected", text(i, 11) + "x"}};
    absl::StrAppend(&pairs, pair.dump(), "\n");
  }
  service.Write("tokenizer.json", TinyTokenizer());
  service.Write("chats.jsonl", chats);
  service.Write("pairs.jsonl", pairs);
}

}  // namespace trainyard::testing
