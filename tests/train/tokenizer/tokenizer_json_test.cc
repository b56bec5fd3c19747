// Proves that a tokenizer.json with anything that would change ids in an unknown way is refused,
// with the path of the field, and that malformed text and foreign ids have their own rules.

#include "train/tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/utf8.h"
#include "train/tokenizer/open_tokenizer.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// A tokenizer of four characters and unk, which tests change.
Json SmallTokenizer() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 7, "content": "<s>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
              "ignore_merges": false,
              "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "abc": 5, "bc": 6},
              "merges": ["a b", ["ab", "c"], "b c"]}})");
}

std::string RefusalOf(const Json& json) {
  const auto tokenizer = ReadTokenizerJson(json.dump());
  if (tokenizer.ok()) return "accepted";
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << tokenizer.status();
  return std::string(tokenizer.status().message());
}

// `pointer` is set to the value of `json`.
std::string RefusalWith(const char* pointer, const char* json) {
  Json changed = SmallTokenizer();
  changed[Json::json_pointer(pointer)] = Json::parse(json);
  return RefusalOf(changed);
}

TEST(TokenizerJson, MergesInTheOldFormAndTheNewAreRead) {
  const auto tokenizer = ReadTokenizerJson(SmallTokenizer().dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->NewEncoder()->Encode("abc<s>bc xx", ids).ok());
  EXPECT_THAT(ids, ElementsAre(5, 7, 6, 0, 0));
  EXPECT_EQ((*tokenizer)->vocab(), 8);
  EXPECT_EQ((*tokenizer)->Find("<s>"), 7);
  EXPECT_EQ((*tokenizer)->Find("xyz"), std::nullopt);
  EXPECT_EQ((*tokenizer)->Decode(std::vector<int32_t>{7, 5}, Specials::kKeep).value(), "<s>abc");
  EXPECT_EQ((*tokenizer)->Decode(std::vector<int32_t>{7, 5}, Specials::kSkip).value(), "abc");
  EXPECT_EQ((*tokenizer)->Decode(std::vector<int32_t>{8}, Specials::kKeep).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(TokenizerJson, FieldsThatAreNotKnownAreRefusedByPath) {
  EXPECT_THAT(RefusalWith("/model/novelty", "true"), HasSubstr("model.novelty: wanted"));
  EXPECT_THAT(RefusalWith("/novelty", "1"), HasSubstr("novelty: wanted"));
  EXPECT_THAT(RefusalWith("/decoder/novelty", "1"), HasSubstr("decoder.novelty: wanted"));
  EXPECT_THAT(RefusalWith("/model/type", "\"Unigram\""), HasSubstr("model.type: wanted BPE"));
  EXPECT_THAT(RefusalWith("/model/dropout", "0.1"), HasSubstr("model.dropout: wanted null"));
  EXPECT_THAT(RefusalWith("/model/end_of_word_suffix", "\"</w>\""),
              HasSubstr("model.end_of_word_suffix: wanted null"));
  EXPECT_THAT(RefusalWith("/truncation", R"({"max_length": 5})"), HasSubstr("truncation: wanted"));
  EXPECT_THAT(RefusalWith("/padding", "{}"), HasSubstr("padding: wanted null"));
  EXPECT_THAT(RefusalWith("/decoder", "null"), HasSubstr("decoder: wanted one"));
}

TEST(TokenizerJson, StepsThatAreNotKnownAreRefusedWithTheNearestName) {
  EXPECT_THAT(RefusalWith("/normalizer", R"({"type": "NFX"})"),
              AllOf(HasSubstr("normalizer.type: wanted NFC"), HasSubstr("found \"NFX\"; nearest")));
  EXPECT_THAT(RefusalWith("/normalizer", R"({"type": "Sequence", "normalizers": [
                {"type": "NFC"}, {"type": "Lowercase"}]})"),
              HasSubstr("normalizer.normalizers[1].type: wanted"));
  EXPECT_THAT(RefusalWith("/pre_tokenizer", R"({"type": "Split", "behavior": "Isolated",
                "invert": false, "pattern": {"Regex": "\\w+"}})"),
              HasSubstr("pre_tokenizer.pattern: wanted"));
  EXPECT_THAT(RefusalWith("/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [
                {"type": "ByteLevel", "add_prefix_space": false}, {"type": "Digits"}]})"),
              HasSubstr("wanted nothing after ByteLevel, found Digits"));
  EXPECT_THAT(RefusalWith("/decoder", R"({"type": "WordPiece"})"), HasSubstr("decoder.type"));
  EXPECT_THAT(RefusalWith("/post_processor", R"({"type": "Novel"})"),
              HasSubstr("post_processor.type"));
}

TEST(TokenizerJson, VocabulariesThatContradictThemselvesAreRefused) {
  EXPECT_THAT(RefusalWith("/model/vocab/a", "2"), HasSubstr("model.vocab: token"));
  EXPECT_THAT(RefusalWith("/model/vocab/a", "-1"), HasSubstr("wanted an id of 0 to"));
  EXPECT_THAT(RefusalWith("/model/vocab/a", "1e9"), HasSubstr("wanted an id of 0 to"));
  EXPECT_THAT(RefusalWith("/model/merges/0", "\"a c\""), HasSubstr("model.merges[0]: wanted"));
  EXPECT_THAT(RefusalWith("/model/merges/0", "\"a b c\""), HasSubstr("model.merges[0]: wanted"));
  EXPECT_THAT(RefusalWith("/added_tokens/0/id", "9"),
              HasSubstr("added_tokens[0].id: wanted 7 for \"<s>\", found 9"));
  EXPECT_THAT(RefusalWith("/model/unk_token", "null"),
              HasSubstr("unknown characters would vanish"));
  EXPECT_THAT(RefusalWith("/model/unk_token", "\"no\""), HasSubstr("model.unk_token: wanted"));
  Json bytes = SmallTokenizer();
  bytes["model"]["unk_token"] = nullptr;
  bytes["model"]["byte_fallback"] = true;
  EXPECT_THAT(RefusalOf(bytes), HasSubstr("found none for 0x00"));
}

// Catches a file of 2 KB that makes 16^10 bytes of one.
TEST(TokenizerJson, StepsThatMakeATextMuchLongerAreStopped) {
  Json step = Json::parse(R"({"type": "Replace", "pattern": {"String": "a"}})");
  step["content"] = std::string(16, 'a');
  Json json = SmallTokenizer();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<Json>(10, step)}};
  auto tokenizer = ReadTokenizerJson(json.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  EXPECT_EQ((*tokenizer)->NewEncoder()->Encode("a", ids).code(),
            absl::StatusCode::kResourceExhausted);
  json = SmallTokenizer();
  json["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(5000, 'a')}};
  tokenizer = ReadTokenizerJson(json.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->NewEncoder()->Encode("a", ids).code(),
            absl::StatusCode::kResourceExhausted);
  json = SmallTokenizer();
  json["decoder"] = {{"type", "Sequence"}, {"decoders", std::vector<Json>(10, step)}};
  tokenizer = ReadTokenizerJson(json.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Decode(std::vector<int32_t>{1, 1}, Specials::kKeep).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// As in `tokenizers`: the first word is the one at the first byte of the text.
TEST(TokenizerJson, MetaspaceFirstMarksNoWordAfterTextThatIsLeftOut) {
  Json json = SmallTokenizer();
  json["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "WhitespaceSplit"},
      {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": false}]})");
  json["model"]["vocab"]["_"] = 7;
  json["added_tokens"][0]["id"] = 8;
  const auto tokenizer = ReadTokenizerJson(json.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> marked, unmarked;
  ASSERT_TRUE((*tokenizer)->NewEncoder()->Encode("a b", marked).ok());
  EXPECT_THAT(marked, ElementsAre(7, 1, 2));
  ASSERT_TRUE((*tokenizer)->NewEncoder()->Encode(" a b", unmarked).ok());
  EXPECT_THAT(unmarked, ElementsAre(1, 2));
}

TEST(TokenizerJson, WhatTokenizersReadInAnotherWayIsRefused) {
  Json json = SmallTokenizer();
  json["added_tokens"].push_back(json["added_tokens"][0]);
  EXPECT_EQ(RefusalOf(json), "accepted");
  json["added_tokens"][1]["lstrip"] = true;
  EXPECT_THAT(RefusalOf(json), HasSubstr("added_tokens[1]: wanted \"<s>\" once"));
  EXPECT_THAT(RefusalWith("/decoder", R"({"type": "Sequence", "decoders": [
                {"type": "ByteLevel"}, {"type": "Fuse"},
                {"type": "Strip", "content": "a", "start": 1, "stop": 0}]})"),
              HasSubstr("decoder.decoders[2]: wanted nothing but Fuse after ByteLevel"));
  json = SmallTokenizer();
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(RefusalOf(json), "accepted");
  json["model"]["byte_fallback"] = true;
  EXPECT_THAT(RefusalOf(json), HasSubstr("model.byte_fallback: wanted false with ByteLevel"));
}

TEST(TokenizerJson, MalformedPartsBecomeTheReplacementCharacterAsInPython) {
  EXPECT_EQ(ReplaceMalformed("a\xE2\x82z"), "a\xEF\xBF\xBDz");  // One part.
  EXPECT_EQ(ReplaceMalformed("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(ReplaceMalformed("\xF0\x9F\x98"), "\xEF\xBF\xBD");
  EXPECT_EQ(ReplaceMalformed("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_TRUE(IsUtf8("plain ASCII that is longer than eight bytes, and \xF0\x9F\x98\x80"));
  EXPECT_FALSE(IsUtf8("plain ASCII that is longer than eight bytes, and \xF0\x9F\x98"));
}

TEST(TokenizerJson, AModelMustHaveAllIdsOfTheTokenizer) {
  const std::string path = ::testing::TempDir() + "/small_tokenizer.json";
  ASSERT_TRUE(WriteFileAtomic(path, SmallTokenizer().dump()).ok());
  const auto opened = OpenTokenizer(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE(CheckVocabulary(*opened, 8).ok());
  EXPECT_THAT(CheckVocabulary(*opened, 7).message(), HasSubstr("at least 8"));
  EXPECT_THAT(OpenTokenizer(::testing::TempDir() + "/no_such_file").status().message(),
              HasSubstr("no_such_file"));
}

}  // namespace
}  // namespace trainyard
