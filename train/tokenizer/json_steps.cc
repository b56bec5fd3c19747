#include "train/tokenizer/json_steps.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "common/violations.h"
#include "train/tokenizer/json_part.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
using SharedExpression = std::shared_ptr<const Expression>;

constexpr size_t kMostSteps = 64;

absl::Status UnknownType(const std::string& path, const std::string& found,
                         const std::vector<std::string>& known) {
  std::string wanted;
  for (const std::string& name : known) {
    absl::StrAppend(&wanted, wanted.empty() ? "" : ", ", name);
  }
  const std::string nearest = NearestName(found, known);
  return absl::InvalidArgumentError(
      absl::StrCat(path, ".type: wanted ", wanted, ", found ", Shown(found),
                   nearest.empty() ? "" : absl::StrCat("; nearest ", nearest)));
}

absl::StatusOr<std::string> TypeOf(const Json& json, const std::string& path) {
  if (json.is_object() && json.contains("type") && json["type"].is_string()) {
    return json["type"].get<std::string>();
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": wanted an object with a type"));
}

// Calls `read` for each step of a Sequence, or for the one step that there is.
template <typename Read>
absl::Status ForEachStep(const Json& json, const std::string& path, const char* list,
                         const Read& read) {
  if (json.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string type, TypeOf(json, path));
  if (type != "Sequence") return read(json, path, type);
  JsonPart part(json, path);
  part.Ignore("type");
  const Json* const steps = part.List(list);
  if (steps == nullptr || steps->size() > kMostSteps) {
    part.Refuse(list, absl::StrCat("a list of at most ", kMostSteps));
  }
  RETURN_IF_ERROR(part.Done());
  for (size_t i = 0; i < steps->size(); ++i) {
    const std::string its = absl::StrCat(path, ".", list, "[", i, "]");
    ASSIGN_OR_RETURN(const std::string inner, TypeOf((*steps)[i], its));
    RETURN_IF_ERROR(read((*steps)[i], its, inner));
  }
  return absl::OkStatus();
}

// {"Regex": "..."} or {"String": "..."}.
absl::StatusOr<SharedExpression> Pattern(JsonPart& part) {
  const Json* const pattern = part.Object("pattern");
  if (pattern == nullptr) part.Refuse("pattern", "an object with Regex or String");
  RETURN_IF_ERROR(part.ok() ? absl::OkStatus() : part.Done());
  JsonPart inner(*pattern, part.PathOf("pattern"));
  const bool literal = pattern->contains("String");
  const std::string text = inner.Text(literal ? "String" : "Regex");
  RETURN_IF_ERROR(inner.Done());
  auto compiled = literal ? Expression::Literally(text) : Expression::Compile(text);
  if (!compiled.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(part.PathOf("pattern"), ": ", compiled.status().message()));
  }
  return std::make_shared<const Expression>(*std::move(compiled));
}

absl::Status ReadNormalizerStep(const Json& json, const std::string& path, const std::string& type,
                                Normalizer& normalizer) {
  JsonPart part(json, path);
  part.Ignore("type");
  const std::pair<const char*, NormalForm> forms[] = {{"NFC", NormalForm::kNfc},
                                                      {"NFD", NormalForm::kNfd},
                                                      {"NFKC", NormalForm::kNfkc},
                                                      {"NFKD", NormalForm::kNfkd}};
  for (const auto& [name, form] : forms) {
    if (type != name) continue;
    normalizer.Add(FormStep(form));
    return part.Done();
  }
  if (type == "Prepend") {
    normalizer.Add(PrependStep{part.Text("prepend")});
    return part.Done();
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(SharedExpression what, Pattern(part));
    normalizer.Add(ReplaceStep{std::move(what), part.Text("content")});
    return part.Done();
  }
  return UnknownType(path, type, {"NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Sequence"});
}

absl::StatusOr<SplitBehavior> ReadBehavior(JsonPart& part) {
  const std::string name = part.Text("behavior");
  const std::pair<const char*, SplitBehavior> behaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [its, behavior] : behaviors) {
    if (name == its) return behavior;
  }
  part.Refuse("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  return part.Done();
}

SharedExpression Known(absl::string_view pattern) {
  return std::make_shared<const Expression>(Expression::Compile(pattern).value());
}

absl::Status ReadMetaspace(JsonPart& part, PreTokenizer& steps) {
  MetaspaceStep step{.mark = part.Text("replacement")};
  const bool prefix_space = part.Flag("add_prefix_space", true);
  const std::string scheme = part.Text("prepend_scheme", "always");
  part.Ignore("str_rep");
  const bool cuts = part.Flag("split", true);
  if (part.ok() && (step.mark.empty() || step.mark.size() != Utf8Bytes(step.mark[0]))) {
    part.Refuse("replacement", "one character");
  }
  if (!prefix_space && scheme != "never") part.Refuse("prepend_scheme", "never without a prefix");
  if (scheme == "first") {
    step.prepend = PrependScheme::kFirst;
  } else if (scheme == "never") {
    step.prepend = PrependScheme::kNever;
  } else if (scheme != "always") {
    part.Refuse("prepend_scheme", "first, always or never");
  }
  RETURN_IF_ERROR(part.Done());
  if (cuts) {
    ASSIGN_OR_RETURN(Expression cut, Expression::Literally(step.mark));
    step.cut = std::make_shared<const Expression>(std::move(cut));
  }
  steps.Add(std::move(step));
  return absl::OkStatus();
}

absl::Status ReadPreTokenizerStep(const Json& json, const std::string& path,
                                  const std::string& type, ReadPreTokenizerSteps& read) {
  if (read.byte_level) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": wanted nothing after ByteLevel, found ", type));
  }
  JsonPart part(json, path);
  part.Ignore("type");
  PreTokenizer& steps = read.steps;
  if (type == "Split") {
    ASSIGN_OR_RETURN(SharedExpression expression, Pattern(part));
    ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(part));
    steps.Add(SplitStep{std::move(expression), behavior, part.Flag("invert", false)});
    return part.Done();
  }
  if (type == "ByteLevel") {
    if (part.Flag("add_prefix_space")) steps.Add(PrefixSpaceStep());
    part.Ignore("trim_offsets");
    if (part.Flag("use_regex", true)) {
      steps.Add(SplitStep{Known(kGpt2Expression), SplitBehavior::kIsolated});
    }
    read.byte_level = true;
    return part.Done();
  }
  if (type == "Digits") {
    const bool individual = part.Flag("individual_digits", false);
    steps.Add(SplitStep{Known(R"(\p{N})"),
                        individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
    return part.Done();
  }
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (part.Any("behavior") != nullptr) {
      ASSIGN_OR_RETURN(behavior, ReadBehavior(part));
    }
    // What ASCII has as punctuation, and the category P.
    steps.Add(SplitStep{Known(R"([!-/:-@\[-`{-~\p{P}])"), behavior});
    return part.Done();
  }
  if (type == "WhitespaceSplit") {
    steps.Add(SplitStep{Known(R"(\s)"), SplitBehavior::kRemoved});
    return part.Done();
  }
  if (type == "Metaspace") return ReadMetaspace(part, steps);
  return UnknownType(
      path, type,
      {"Split", "ByteLevel", "Digits", "Punctuation", "WhitespaceSplit", "Metaspace", "Sequence"});
}

absl::Status ReadDecoderStep(const Json& json, const std::string& path, const std::string& type,
                             TokenDecoder& decoder) {
  JsonPart part(json, path);
  part.Ignore("type");
  if (type == "ByteLevel") {
    for (const char* field : {"add_prefix_space", "trim_offsets", "use_regex"}) part.Ignore(field);
    decoder.Add(BytesStep());
    return part.Done();
  }
  if (type == "ByteFallback") {
    decoder.Add(ByteFallbackStep());
    return part.Done();
  }
  if (type == "Fuse") {
    decoder.Add(FuseStep());
    return part.Done();
  }
  if (type == "Strip") {
    StripStep step;
    step.character = part.Text("content");
    const int64_t start = part.Whole("start"), stop = part.Whole("stop");
    if (start < 0 || start > 1000) part.Refuse("start", "0 to 1000");
    if (stop < 0 || stop > 1000) part.Refuse("stop", "0 to 1000");
    if (part.ok() && step.character.empty()) part.Refuse("content", "a character");
    step.start = size_t(start);
    step.stop = size_t(stop);
    decoder.Add(std::move(step));
    return part.Done();
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(SharedExpression what, Pattern(part));
    decoder.Add(ReplaceStep{std::move(what), part.Text("content")});
    return part.Done();
  }
  if (type == "Metaspace") {
    UnmarkStep step;
    step.mark = part.Text("replacement");
    part.Ignore("add_prefix_space");
    part.Ignore("split");
    step.drops_first = part.Text("prepend_scheme", "always") != "never";
    if (part.ok() && step.mark.empty()) part.Refuse("replacement", "one character");
    decoder.Add(std::move(step));
    return part.Done();
  }
  return UnknownType(
      path, type,
      {"ByteLevel", "ByteFallback", "Fuse", "Strip", "Replace", "Metaspace", "Sequence"});
}

// ["<s>", 1], as BERT and RoBERTa have.
absl::StatusOr<int32_t> PairId(JsonPart& part, const char* name) {
  const Json* const pair = part.List(name);
  if (pair == nullptr || pair->size() != 2 || !(*pair)[1].is_number_unsigned() ||
      (*pair)[1].get<uint64_t>() >= uint64_t(kMostTokens)) {
    part.Refuse(name, "a token and its id");
    return part.Done();
  }
  return (*pair)[1].get<int32_t>();
}

// Returns null if there is no such member, or no object.
const Json* Member(const Json* json, const std::string& name) {
  if (json == nullptr || !json->is_object()) return nullptr;
  const auto found = json->find(name);
  return found == json->end() ? nullptr : &*found;
}

// Reads a list of {"SpecialToken": {"id": "<s>", ..}} and one {"Sequence": ..}, the text.
absl::Status ReadTemplate(JsonPart& part, TemplateIds& ids) {
  const Json* const single = part.List("single");
  const Json* const tokens = part.Object("special_tokens");
  part.Ignore("pair");
  if (single == nullptr) part.Refuse("single", "a list");
  RETURN_IF_ERROR(part.Done());
  bool after_text = false;
  for (const Json& piece : *single) {
    if (Member(&piece, "Sequence") != nullptr && !after_text) {
      after_text = true;
      continue;
    }
    const Json* const name = Member(Member(&piece, "SpecialToken"), "id");
    const bool is_name = name != nullptr && name->is_string();
    const Json* const its =
        is_name ? Member(Member(tokens, name->get<std::string>()), "ids") : nullptr;
    if (its == nullptr || !its->is_array()) {
      part.Refuse("single", "special tokens with ids, and one Sequence");
      return part.Done();
    }
    for (const Json& id : *its) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= uint64_t(kMostTokens)) {
        part.Refuse("special_tokens", absl::StrCat("ids of 0 to ", kMostTokens - 1));
        return part.Done();
      }
      (after_text ? ids.suffix : ids.prefix).push_back(id.get<int32_t>());
    }
  }
  if (!after_text) part.Refuse("single", "a Sequence");
  return part.Done();
}

absl::Status ReadPostStep(const Json& json, const std::string& path, const std::string& type,
                          TemplateIds& ids) {
  JsonPart part(json, path);
  part.Ignore("type");
  if (type == "ByteLevel") {  // Which changes offsets alone.
    for (const char* field : {"add_prefix_space", "trim_offsets", "use_regex"}) part.Ignore(field);
    return part.Done();
  }
  if (!ids.prefix.empty() || !ids.suffix.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": wanted one step that adds tokens, found another, ", type));
  }
  if (type == "TemplateProcessing") return ReadTemplate(part, ids);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    part.Ignore("trim_offsets");
    part.Ignore("add_prefix_space");
    ASSIGN_OR_RETURN(const int32_t first, PairId(part, "cls"));
    ASSIGN_OR_RETURN(const int32_t last, PairId(part, "sep"));
    ids = {{first}, {last}};
    return part.Done();
  }
  return UnknownType(
      path, type,
      {"ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing", "Sequence"});
}

}  // namespace

absl::StatusOr<Normalizer> ReadNormalizer(const Json& json) {
  Normalizer normalizer;
  RETURN_IF_ERROR(ForEachStep(json, "normalizer", "normalizers",
                              [&](const Json& step, const std::string& path, const auto& type) {
                                return ReadNormalizerStep(step, path, type, normalizer);
                              }));
  return normalizer;
}

absl::StatusOr<ReadPreTokenizerSteps> ReadPreTokenizer(const Json& json) {
  ReadPreTokenizerSteps read;
  RETURN_IF_ERROR(ForEachStep(json, "pre_tokenizer", "pretokenizers",
                              [&](const Json& step, const std::string& path, const auto& type) {
                                return ReadPreTokenizerStep(step, path, type, read);
                              }));
  return read;
}

absl::StatusOr<TokenDecoder> ReadDecoder(const Json& json) {
  if (json.is_null()) {
    return absl::InvalidArgumentError(
        "decoder: wanted one, found none: texts that were encoded would not come back");
  }
  TokenDecoder decoder;
  bool after_bytes = false;
  RETURN_IF_ERROR(ForEachStep(
      json, "decoder", "decoders",
      [&](const Json& step, const std::string& path, const std::string& type) -> absl::Status {
        // `tokenizers` join the bytes of all tokens into one token.
        if (after_bytes && type != "Fuse") {
          return absl::InvalidArgumentError(
              absl::StrCat(path, ": wanted nothing but Fuse after ByteLevel, found ", type));
        }
        after_bytes |= type == "ByteLevel";
        return ReadDecoderStep(step, path, type, decoder);
      }));
  return decoder;
}

absl::StatusOr<TemplateIds> ReadPostProcessor(const Json& json) {
  TemplateIds ids;
  RETURN_IF_ERROR(ForEachStep(json, "post_processor", "processors",
                              [&](const Json& step, const std::string& path, const auto& type) {
                                return ReadPostStep(step, path, type, ids);
                              }));
  return ids;
}

}  // namespace trainyard
