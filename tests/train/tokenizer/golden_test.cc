// Proves that the ids and the decoded texts of 2,500 lines are those of Hugging Face's
// `tokenizers`, of SentencePiece and of tiktoken, for small tokenizers in the shapes of published
// ones. tests/golden/make_tokenizers.py made the files with these libraries.

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/crc32.h"
#include "common/files.h"
#include "common/utf8.h"
#include "tests/train/tokenizer/golden_file.h"

namespace trainyard {
namespace {

std::vector<std::string> LinesOf(const std::string& name) {
  const auto text = ReadFile(GoldenTokenizers() + "/" + name);
  EXPECT_TRUE(text.ok()) << text.status();
  std::vector<std::string> lines = absl::StrSplit(text.value_or(""), '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string> GoldenTexts() {
  std::vector<std::string> texts;
  for (const std::string& line : LinesOf("lines.txt")) {
    std::string text;
    EXPECT_TRUE(absl::CUnescape(line, &text)) << line;
    texts.push_back(std::move(text));
  }
  return texts;
}

// The files with tokenizers.
std::vector<std::string> GoldenFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenTokenizers())) {
    const std::string extension = entry.path().extension();
    if (extension != ".txt" && extension != ".ids") files.push_back(entry.path().filename());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Checksum(const std::vector<int32_t>& ids, const std::string& text) {
  const uint32_t of_ids = Crc32(0, ids.data(), ids.size() * sizeof(int32_t));
  return absl::StrFormat("%08x", Crc32(of_ids, text.data(), text.size()));
}

class GoldenTokenizer : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenTokenizer() {
    auto opened = OpenGolden(GetParam());
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) opened_ = *std::move(opened);
  }

  // The ids as `encode` has them, with those of the template.
  std::vector<int32_t> Ids(Encoder& encoder, const std::string& text) const {
    std::vector<int32_t> ids = opened_.tokenizer->prefix();
    const absl::Status status = encoder.Encode(text, ids);
    EXPECT_TRUE(status.ok()) << status;
    const std::vector<int32_t>& suffix = opened_.tokenizer->suffix();
    ids.insert(ids.end(), suffix.begin(), suffix.end());
    return ids;
  }

  OpenedTokenizer opened_;
};

TEST_P(GoldenTokenizer, IdsAndTextsAreThoseOfThePublicLibrary) {
  ASSERT_NE(opened_.tokenizer, nullptr);
  const std::vector<std::string> texts = GoldenTexts();
  const std::vector<std::string> golden =
      LinesOf(std::filesystem::path(GetParam()).stem().string() + ".ids");
  ASSERT_GE(texts.size(), 2500u);
  ASSERT_EQ(texts.size(), golden.size());
  const auto encoder = opened_.tokenizer->NewEncoder();
  int wrong = 0;
  for (size_t i = 0; i < texts.size() && wrong < 5; ++i) {
    const std::vector<int32_t> ids = Ids(*encoder, texts[i]);
    const auto decoded = opened_.tokenizer->Decode(ids, Specials::kKeep);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    const std::string shown = ReplaceMalformed(*decoded);
    const std::string ours = Checksum(ids, shown);
    if (ours == golden[i]) continue;
    ++wrong;
    ADD_FAILURE() << "line " << i + 1 << " \"" << absl::CEscape(texts[i]) << "\": " << ours
                  << ", wanted " << golden[i] << ", ids " << absl::StrJoin(ids, " ") << ", text \""
                  << absl::CEscape(shown) << "\"";
  }
}

// What an encoder remembers of earlier texts must not change the ids of later ones.
TEST_P(GoldenTokenizer, AnEncoderThatIsUsedAndANewOneAgree) {
  ASSERT_NE(opened_.tokenizer, nullptr);
  const std::vector<std::string> texts = GoldenTexts();
  const auto used = opened_.tokenizer->NewEncoder();
  for (const std::string& text : texts) Ids(*used, text);
  for (size_t i = 0; i < texts.size(); i += 97) {
    const auto fresh = opened_.tokenizer->NewEncoder();
    EXPECT_EQ(Ids(*used, texts[i]), Ids(*fresh, texts[i])) << absl::CEscape(texts[i]);
  }
}

TEST_P(GoldenTokenizer, TextsComeBackExactlyUnlessTheTokenizerChangesThem) {
  ASSERT_NE(opened_.tokenizer, nullptr);
  // Those that normalize, add a space, or drop something.
  const std::set<std::string> changing = {
      "qwen.json",   "forms.json",       "added.json",        "roberta.json",
      "llama2.json", "mistral.json",     "metaspace.json",    "never.json",
      "gemma.json",  "llama2_spm.model", "mistral_spm.model", "spaces_spm.model"};
  const bool changes = changing.count(GetParam()) > 0;
  const auto encoder = opened_.tokenizer->NewEncoder();
  int differ = 0;
  for (const std::string& text : GoldenTexts()) {
    std::vector<int32_t> ids;
    ASSERT_TRUE(encoder->Encode(text, ids).ok());
    const auto decoded = opened_.tokenizer->Decode(ids, Specials::kKeep);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    if (*decoded == ReplaceMalformed(text)) continue;
    ++differ;
    EXPECT_TRUE(changes) << absl::CEscape(text) << " came back as " << absl::CEscape(*decoded);
  }
  EXPECT_EQ(differ > 0, changes);
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTokenizer, ::testing::ValuesIn(GoldenFiles()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace trainyard
