#include "train/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "train/tokenizer/byte_alphabet.h"
#include "train/tokenizer/format.h"
#include "train/tokenizer/json_part.h"
#include "train/tokenizer/json_steps.h"
#include "train/tokenizer/pipeline_tokenizer.h"
#include "train/tokenizer/tiktoken.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// Bytes that UTF-8 never has, so that a vocabulary may lack them.
bool IsOutsideUtf8(size_t byte) { return byte == 0xC0 || byte == 0xC1 || byte >= 0xF5; }

absl::StatusOr<Vocabulary> ReadVocabulary(const Json& vocab) {
  Vocabulary tokens;
  for (const auto& [token, id] : vocab.items()) {
    int64_t number = -1;
    if (!ReadInteger(id, number)) number = -1;
    const absl::Status added = tokens.Add(token, number);
    if (!added.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("model.vocab: ", added.message()));
    }
  }
  return tokens;
}

// Returns the two texts of a merge: "a b" in older files, ["a", "b"] in newer ones.
std::pair<std::string, std::string> MergedTexts(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (!merge.is_string()) return {};
  const std::string& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return {};
  return {text.substr(0, space), text.substr(space + 1)};
}

absl::StatusOr<MergeTable> ReadMerges(const Json& merges, const Vocabulary& tokens) {
  MergeTable table(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = MergedTexts(merges[rank]);
    const auto left_id = tokens.Find(left), right_id = tokens.Find(right);
    const auto id = tokens.Find(absl::StrCat(left, right));
    if (left.empty() || right.empty() || !left_id || !right_id || !id) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.merges[", rank, "]: wanted two tokens that are a token together, ",
                       "found ", Shown(JsonText(merges[rank]))));
    }
    table.Add(*left_id, *right_id, {uint32_t(rank), *id});
  }
  return table;
}

// The tokens by the bytes that they stand for. Tokens that stand for none are only added tokens.
absl::StatusOr<Vocabulary> ByBytes(const Vocabulary& tokens) {
  Vocabulary words;
  for (int64_t id = 0; id < tokens.end(); ++id) {
    const std::string* const token = tokens.TextOf(int32_t(id));
    if (token == nullptr) continue;
    if (const auto bytes = BytesOfAlphabet(*token)) RETURN_IF_ERROR(words.Add(*bytes, id));
  }
  return words;
}

Vocabulary CopyOf(const Vocabulary& tokens) {
  Vocabulary copy;
  for (int64_t id = 0; id < tokens.end(); ++id) {
    const std::string* const token = tokens.TextOf(int32_t(id));
    if (token != nullptr) copy.Add(*token, id).IgnoreError();  // It was added once.
  }
  return copy;
}

// Every text must become ids. `tokenizers` would leave a byte out without a word.
absl::Status CheckBytes(const Bpe& bpe) {
  if (bpe.options().unk) return absl::OkStatus();
  if (!bpe.options().byte_level && !bpe.options().byte_fallback) {
    return absl::InvalidArgumentError(
        "model.unk_token: wanted a token, since there are neither bytes (ByteLevel) nor "
        "byte_fallback, found none: unknown characters would vanish");
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (bpe.byte_id(uint8_t(byte)) >= 0 || IsOutsideUtf8(byte)) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("model.vocab: wanted a token for each byte, found none for 0x%02X, and no "
                        "unk_token: texts with this byte would lose it",
                        byte));
  }
  return absl::OkStatus();
}

absl::StatusOr<BpeOptions> ReadBpeOptions(JsonPart& part, bool byte_level,
                                          const Vocabulary& tokens) {
  BpeOptions options{.byte_level = byte_level};
  options.byte_fallback = part.Flag("byte_fallback", false);
  if (options.byte_fallback && byte_level) part.Refuse("byte_fallback", "false with ByteLevel");
  options.fuse_unk = part.Flag("fuse_unk", false);
  options.ignore_merges = part.Flag("ignore_merges", false);
  const Json* const unk = part.Any("unk_token");
  if (unk != nullptr) {
    const std::string text = part.Text("unk_token");
    options.unk = tokens.Find(text);
    if (!options.unk) part.Refuse("unk_token", "a token of the vocabulary");
  }
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!part.Text(field, "").empty()) part.Refuse(field, "null");
  }
  const Json* const dropout = part.Any("dropout");
  if (dropout != nullptr && *dropout != 0) part.Refuse("dropout", "null");
  RETURN_IF_ERROR(part.Done());
  return options;
}

struct ReadModel {
  Vocabulary tokens;
  std::unique_ptr<const Bpe> bpe;
};

absl::StatusOr<ReadModel> ReadBpeModel(const Json& json, bool byte_level) {
  JsonPart part(json, "model");
  if (part.Text("type", "BPE") != "BPE") part.Refuse("type", "BPE");
  const Json* const vocab = part.Object("vocab");
  const Json* const merges = part.List("merges");
  if (vocab == nullptr) part.Refuse("vocab", "an object");
  if (merges == nullptr) part.Refuse("merges", "a list");
  if (!part.ok()) return part.Done();
  ASSIGN_OR_RETURN(Vocabulary tokens, ReadVocabulary(*vocab));
  ASSIGN_OR_RETURN(MergeTable table, ReadMerges(*merges, tokens));
  ASSIGN_OR_RETURN(const BpeOptions options, ReadBpeOptions(part, byte_level, tokens));
  Vocabulary words;
  if (byte_level) {
    ASSIGN_OR_RETURN(words, ByBytes(tokens));
  } else {
    words = CopyOf(tokens);
  }
  auto bpe = std::make_unique<const Bpe>(std::move(words), std::move(table), options);
  RETURN_IF_ERROR(CheckBytes(*bpe));
  return ReadModel{std::move(tokens), std::move(bpe)};
}

// Adds the tokens to the vocabulary. `tokenizers` numbers the new ones itself, whatever id the file
// says, so another id in the file would be wrong.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const Json& json, Vocabulary& tokens) {
  std::vector<AddedToken> added;
  const int64_t model_size = tokens.size();
  int64_t largest = -1;
  std::map<std::string, Json> seen;  // The whole entries, by content.
  for (size_t i = 0; i < json.size(); ++i) {
    JsonPart part(json[i], absl::StrCat("added_tokens[", i, "]"));
    AddedToken token;
    token.content = part.Text("content");
    token.single_word = part.Flag("single_word");
    token.lstrip = part.Flag("lstrip");
    token.rstrip = part.Flag("rstrip");
    token.normalized = part.Flag("normalized");
    token.special = part.Flag("special");
    const int64_t id = part.Whole("id");
    RETURN_IF_ERROR(part.Done());
    if (token.content.empty()) continue;
    const auto known = tokens.Find(token.content);
    const int64_t wanted = known ? *known : largest >= model_size ? largest + 1 : model_size;
    if (id != wanted) {
      return absl::InvalidArgumentError(absl::StrCat("added_tokens[", i, "].id: wanted ", wanted,
                                                     " for ", Shown(token.content), ", found ", id,
                                                     ": the vocabulary is another one"));
    }
    const auto [before, is_new] = seen.emplace(token.content, json[i]);
    if (!is_new && before->second != json[i]) {
      return absl::InvalidArgumentError(absl::StrCat("added_tokens[", i, "]: wanted ",
                                                     Shown(token.content),
                                                     " once, found it again with other flags"));
    }
    if (!is_new) continue;
    if (!known) RETURN_IF_ERROR(tokens.Add(token.content, id));
    largest = std::max(largest, id);
    token.id = int32_t(id);
    added.push_back(std::move(token));
  }
  return added;
}

}  // namespace

const TokenizerFormat& TokenizerJsonFormat() {
  static const TokenizerFormat kFormat = {
      .name = "tokenizer.json",
      .file = "tokenizer.json",
      .is = [](const auto& /*path*/,
               absl::string_view bytes) { return BeginsAsObject(bytes) && !IsTekken(bytes); },
      .read = [](const auto& /*path*/,
                 absl::string_view bytes) { return ReadTokenizerJson(bytes); }};
  return kFormat;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizerJson(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseUniqueJson(text));
  JsonPart file(json, "");
  file.Ignore("version");
  const Json none;
  const auto step = [&](const char* name) -> const Json& {
    const Json* const found = file.Any(name);
    return found == nullptr ? none : *found;
  };
  // Only encode() of `tokenizers` applies these, and a corpus must not be cut or padded.
  for (const char* name : {"truncation", "padding"}) {
    if (file.Any(name) != nullptr) file.Refuse(name, "null");
  }
  const Json* const added = file.List("added_tokens");
  const Json* const model = file.Object("model");
  if (model == nullptr) file.Refuse("model", "an object");
  if (!file.ok()) return file.Done();
  PipelineParts parts;
  ASSIGN_OR_RETURN(parts.normalizer, ReadNormalizer(step("normalizer")));
  ASSIGN_OR_RETURN(ReadPreTokenizerSteps pre, ReadPreTokenizer(step("pre_tokenizer")));
  ASSIGN_OR_RETURN(parts.decoder, ReadDecoder(step("decoder")));
  ASSIGN_OR_RETURN(TemplateIds ids, ReadPostProcessor(step("post_processor")));
  RETURN_IF_ERROR(file.Done());
  ASSIGN_OR_RETURN(ReadModel read, ReadBpeModel(*model, pre.byte_level));
  parts.pre_tokenizer = std::move(pre.steps);
  parts.prefix = std::move(ids.prefix);
  parts.suffix = std::move(ids.suffix);
  parts.tokens = std::move(read.tokens);
  parts.bpe = std::move(read.bpe);
  if (added != nullptr) {
    ASSIGN_OR_RETURN(parts.added, ReadAddedTokens(*added, parts.tokens));
  }
  for (const auto* const list : {&parts.prefix, &parts.suffix}) {
    for (const int32_t id : *list) {
      if (parts.tokens.TextOf(id) != nullptr) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("post_processor: wanted ids of tokens, found ", id, ", which no token has"));
    }
  }
  return PipelineTokenizer::Create(std::move(parts));
}

}  // namespace trainyard
