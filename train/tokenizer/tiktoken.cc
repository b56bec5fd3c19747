#include "train/tokenizer/tiktoken.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/violations.h"
#include "train/tokenizer/format.h"
#include "train/tokenizer/json_part.h"
#include "train/tokenizer/json_steps.h"
#include "train/tokenizer/pipeline_tokenizer.h"

namespace trainyard {
namespace {

constexpr size_t kMostTokenBytes = 4096;  // The longest known are runs of 128 spaces.

constexpr char kContractions[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
constexpr char kWord[] = R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
constexpr char kRest[] = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The two kinds of words of o200k: one ends with small letters, the other has a large one.
constexpr char kSmallWord[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)";
constexpr char kLargeWord[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)";
constexpr char kO200kRest[] = R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What is known of a file by its name.
struct KnownTiktoken {
  const char* name;
  int64_t ranks;  // How many the published file has.
  std::string expression;
  std::vector<std::pair<const char*, int32_t>> specials;
  int numbered = 0;         // How many <|extra_0|>, ... follow the last special token.
  bool normalizes = false;  // To NFC.
};

const std::vector<KnownTiktoken>& KnownFiles() {
  static const std::vector<KnownTiktoken>& known = *new std::vector<KnownTiktoken>{
      {"r50k_base", 50256, kGpt2Expression, {{"<|endoftext|>", 50256}}},
      {"gpt2", 50256, kGpt2Expression, {{"<|endoftext|>", 50256}}},
      {"p50k_base", 50280, kGpt2Expression, {{"<|endoftext|>", 50256}}},
      {"cl100k_base",
       100256,
       absl::StrCat(kContractions, kWord, "{1,3}", kRest),
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base",
       199998,
       absl::StrCat(kSmallWord, kContractions, "?|", kLargeWord, kContractions, "?", kO200kRest),
       {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {"qwen",
       151643,
       absl::StrCat(kContractions, kWord, kRest),
       {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}},
       205,
       true}};
  return known;
}

absl::StatusOr<const KnownTiktoken*> FindKnown(absl::string_view name) {
  std::vector<std::string> names;
  for (const KnownTiktoken& one : KnownFiles()) {
    if (one.name == name) return &one;
    names.push_back(one.name);
  }
  std::string wanted;
  for (const std::string& one : names) absl::StrAppend(&wanted, wanted.empty() ? "" : ", ", one);
  const std::string nearest = NearestName(name, names);
  return absl::InvalidArgumentError(absl::StrCat(
      "wanted a file name that says how texts are cut, one of ", wanted, ", found ",
      Shown(ValidUtf8(name)), nearest.empty() ? "" : absl::StrCat("; nearest ", nearest)));
}

// All pairs of tokens that are a token together.
MergeTable AllMerges(const Vocabulary& words) {
  std::vector<std::pair<std::pair<int32_t, int32_t>, int32_t>> merges;
  for (int64_t id = 0; id < words.end(); ++id) {
    const std::string* const token = words.TextOf(int32_t(id));
    if (token == nullptr) continue;
    const absl::string_view whole = *token;
    for (size_t cut = 1; cut < whole.size(); ++cut) {
      const auto left = words.Find(whole.substr(0, cut)), right = words.Find(whole.substr(cut));
      if (left && right) merges.push_back({{*left, *right}, int32_t(id)});
    }
  }
  MergeTable table(merges.size());
  for (const auto& [pair, id] : merges) table.Add(pair.first, pair.second, {uint32_t(id), id});
  return table;
}

absl::Status AddRank(Vocabulary& words, absl::string_view base64, int64_t id) {
  std::string token;
  if (!absl::Base64Unescape(base64, &token) || token.empty() || token.size() > kMostTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wanted 1 to ", kMostTokenBytes, " bytes in base64, found ", Shown(ValidUtf8(base64))));
  }
  return words.Add(token, id);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> FromRanks(Vocabulary words, Expression expression,
                                                     PipelineParts parts) {
  for (int byte = 0; byte < 256; ++byte) {
    if (words.Find(std::string(1, char(byte)))) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("wanted a token for each byte, found none for 0x%02X", byte));
  }
  // Special tokens come first: if their text is a word, too, users mean the special token.
  for (const auto* const list : {&parts.added, &parts.unseen}) {
    for (const AddedToken& token : *list) {
      RETURN_IF_ERROR(parts.tokens.Add(token.content, token.id));
    }
  }
  for (int64_t id = 0; id < words.end(); ++id) {
    const std::string* const token = words.TextOf(int32_t(id));
    if (token != nullptr) RETURN_IF_ERROR(parts.tokens.AddSecond(*token, id));
  }
  parts.pre_tokenizer.Add(SplitStep{std::make_shared<const Expression>(std::move(expression))});
  MergeTable merges = AllMerges(words);
  // tiktoken looks a word up before it joins anything.
  const BpeOptions options{.byte_level = true, .ignore_merges = true};
  parts.bpe = std::make_unique<const Bpe>(std::move(words), std::move(merges), options);
  return PipelineTokenizer::Create(std::move(parts));
}

// Older files have no list: these three are in all of them.
absl::StatusOr<std::vector<AddedToken>> ReadTekkenSpecials(const nlohmann::json* specials,
                                                           int64_t special_count) {
  std::vector<AddedToken> read;
  if (specials == nullptr) {
    for (const char* content : {"<unk>", "<s>", "</s>"}) {
      read.push_back({.id = int32_t(read.size()), .content = content, .special = true});
    }
    return read;
  }
  for (size_t i = 0; i < specials->size(); ++i) {
    JsonPart entry((*specials)[i], absl::StrCat("special_tokens[", i, "]"));
    entry.Ignore("is_control");
    const int64_t rank = entry.Whole("rank");
    if (rank < 0 || rank >= special_count) {
      entry.Refuse("rank", absl::StrCat("0 to ", special_count - 1));
    }
    const std::string content = entry.Text("token_str");
    RETURN_IF_ERROR(entry.Done());
    read.push_back({.id = int32_t(rank), .content = content, .special = true});
  }
  return read;
}

// Without its last ranks, or some in between, a file would give other ids.
absl::Status CheckRanks(const Vocabulary& words, const KnownTiktoken& known, TiktokenSize size) {
  for (int64_t id = 0; id < words.end(); ++id) {
    if (words.TextOf(int32_t(id)) != nullptr) continue;
    const bool special = std::any_of(known.specials.begin(), known.specials.end(),
                                     [id](const auto& one) { return one.second == id; });
    if (special) continue;  // Of p50k_base, one stands between the others.
    return absl::InvalidArgumentError(
        absl::StrCat("wanted a token for each rank, found none for ", id, ": the file is damaged"));
  }
  if (size == TiktokenSize::kAny || words.size() == known.ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("wanted the ", known.ranks, " ranks of ", known.name, ", found ", words.size(),
                   ": the file is cut, or has the name of another one"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTiktoken(absl::string_view text,
                                                        absl::string_view name, TiktokenSize size) {
  ASSIGN_OR_RETURN(const KnownTiktoken* const known, FindKnown(name));
  Vocabulary words;
  for (int64_t number = 1; !text.empty(); ++number) {
    const absl::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    int64_t rank = -1;
    absl::Status added =
        space != absl::string_view::npos && absl::SimpleAtoi(line.substr(space + 1), &rank)
            ? AddRank(words, line.substr(0, space), rank)
            : absl::InvalidArgumentError(absl::StrCat("wanted base64, a space and a rank, found ",
                                                      Shown(ValidUtf8(line))));
    if (added.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", added.message()));
  }
  RETURN_IF_ERROR(CheckRanks(words, *known, size));
  PipelineParts parts;
  for (const auto& [content, id] : known->specials) {
    parts.added.push_back({.id = id, .content = content, .special = true});
  }
  for (int i = 0; i < known->numbered; ++i) {
    parts.added.push_back({.id = known->specials.back().second + 1 + i,
                           .content = absl::StrCat("<|extra_", i, "|>"),
                           .special = true});
  }
  if (known->normalizes) parts.normalizer.Add(FormStep(NormalForm::kNfc));
  return FromRanks(std::move(words), Expression::Compile(known->expression).value(),
                   std::move(parts));
}

const TokenizerFormat& TekkenFormat() {
  static const TokenizerFormat kFormat = {
      .name = "tekken.json",
      .file = "tekken.json",
      .is = [](const auto& /*path*/,
               absl::string_view bytes) { return BeginsAsObject(bytes) && IsTekken(bytes); },
      .read = [](const auto& /*path*/, absl::string_view bytes) { return ReadTekken(bytes); }};
  return kFormat;
}

const TokenizerFormat& TiktokenFormat() {
  static const TokenizerFormat kFormat = {
      .name = "NAME.tiktoken",
      .file = nullptr,
      .is = [](const auto& path,
               absl::string_view /*bytes*/) { return path.extension() == ".tiktoken"; },
      .read = [](const auto& path,
                 absl::string_view bytes) { return ReadTiktoken(bytes, path.stem().string()); }};
  return kFormat;
}

bool IsTekken(absl::string_view text) {
  // A tokenizer.json has its "model" instead. The texts of tokens may have anything, but in
  // escaped quotes.
  const size_t front = 4096;
  return absl::StrContains(text.substr(0, front), "\"num_vocab_tokens\"");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTekken(absl::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseUniqueJson(text));
  JsonPart file(json, "");
  const nlohmann::json* const config_json = file.Object("config");
  const nlohmann::json* const vocab = file.List("vocab");
  const nlohmann::json* const specials = file.List("special_tokens");
  for (const char* name : {"type", "version", "image", "multimodal", "audio"}) file.Ignore(name);
  if (config_json == nullptr) file.Refuse("config", "an object");
  if (vocab == nullptr) file.Refuse("vocab", "a list");
  RETURN_IF_ERROR(file.Done());
  JsonPart config(*config_json, "config");
  const std::string pattern = config.Text("pattern");
  const int64_t special_count = config.Whole("default_num_special_tokens");
  const int64_t vocab_size = config.Whole("default_vocab_size");
  for (const char* name : {"num_vocab_tokens", "version"}) config.Ignore(name);
  const int64_t most_ranks = int64_t(vocab->size());
  if (special_count < 0 || special_count > kMostTokens) {
    config.Refuse("default_num_special_tokens", absl::StrCat("0 to ", kMostTokens));
  } else if (vocab_size < special_count || vocab_size - special_count > most_ranks) {
    config.Refuse("default_vocab_size", absl::StrCat(special_count, ", the special tokens, to ",
                                                     special_count + most_ranks));
  }
  RETURN_IF_ERROR(config.Done());
  ASSIGN_OR_RETURN(Expression expression, Expression::Compile(pattern));
  Vocabulary words;
  for (int64_t i = 0; i < vocab_size - special_count; ++i) {
    JsonPart entry((*vocab)[size_t(i)], absl::StrCat("vocab[", i, "]"));
    entry.Ignore("token_str");
    if (entry.Whole("rank") != i) entry.Refuse("rank", absl::StrCat(i));
    const std::string base64 = entry.Text("token_bytes");
    RETURN_IF_ERROR(entry.Done());
    RETURN_IF_ERROR(AddRank(words, base64, special_count + i));
  }
  PipelineParts parts;
  ASSIGN_OR_RETURN(parts.unseen, ReadTekkenSpecials(specials, special_count));
  return FromRanks(std::move(words), std::move(expression), std::move(parts));
}

}  // namespace trainyard
