// Proves that a document cannot cost more than its limits, whatever it holds, and that mangled text
// is an error or a tree, never a crash.

#include "train/config/yaml.h"

#include <gmock/gmock.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/rng.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Message(absl::string_view text) {
  return std::string(ParseYaml(text).status().message());
}

std::string Repeat(absl::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) absl::StrAppend(&out, text);
  return out;
}

TEST(ParseYaml, KeepsQuotesApartAndOrder) {
  const auto root = ParseYaml("b: '1'\na: 1\nc: [x, null, ~, '~', \"\\u0041\"]\nd:\n");
  ASSERT_TRUE(root.ok()) << root.status();
  ASSERT_EQ(root->fields.size(), 4u);
  EXPECT_EQ(root->fields[0].key, "b");
  EXPECT_TRUE(root->Find("b")->quoted);
  EXPECT_FALSE(root->Find("a")->quoted);
  EXPECT_EQ(root->Find("a")->line, 2);
  const auto& items = root->Find("c")->items;
  ASSERT_EQ(items.size(), 5u);
  EXPECT_EQ(items[1].kind, YamlNode::Kind::kNull);
  EXPECT_EQ(items[2].kind, YamlNode::Kind::kNull);
  EXPECT_EQ(items[3].text, "~");
  EXPECT_EQ(items[4].text, "A");
  EXPECT_EQ(root->Find("d")->kind, YamlNode::Kind::kNull);
  EXPECT_EQ(root->Find("e"), nullptr);
}

TEST(ParseYaml, ExpandsAliases) {
  const auto root = ParseYaml("a: &x {k: v}\nb: *x\n");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(root->Find("b")->Find("k")->text, "v");
}

// Patterns of layers and of names may begin so.
TEST(ParseYaml, ATextThatBeginsWithAStarNeedsQuotes) {
  for (const char* text : {"pattern: *EM", "pattern: *E-M*", "*", "[*norm*, x]", "pattern: *"}) {
    EXPECT_THAT(Message(text), HasSubstr("a text that begins with '*' needs quotes")) << text;
  }
  EXPECT_EQ(ParseYaml("pattern: '*E-M*'")->Find("pattern")->text, "*E-M*");
  EXPECT_THAT(Message("a: [1"), Not(HasSubstr("quotes")));
}

TEST(ParseYaml, RefusesDepthBeyondTheLimitInBothStyles) {
  EXPECT_TRUE(ParseYaml(Repeat("[", kMaxYamlDepth) + Repeat("]", kMaxYamlDepth)).ok());
  for (const int depth : {kMaxYamlDepth + 1, 1000, 100'000}) {
    EXPECT_THAT(Message(Repeat("[", depth) + Repeat("]", depth)), HasSubstr("nested deeper"));
    EXPECT_THAT(Message(Repeat("[", depth)), HasSubstr("line 1"));
    EXPECT_THAT(Message(Repeat("{a: ", depth)), HasSubstr("line 1")) << depth;
    EXPECT_THAT(Message(Repeat("- ", depth)), HasSubstr("nested deeper")) << depth;
  }
  EXPECT_THAT(Message("a: &x " + Repeat("[", 20) + Repeat("]", 20) + "\nb: " + Repeat("[", 20) +
                      "*x" + Repeat("]", 20)),
              HasSubstr("nested deeper"));
}

TEST(ParseYaml, RefusesAliasBombs) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    absl::StrAppend(&bomb, "a", i, ": &a", i, " [");
    for (int j = 0; j < 9; ++j) absl::StrAppend(&bomb, j ? ", " : "", "*a", i - 1);
    absl::StrAppend(&bomb, "]\n");
  }
  EXPECT_THAT(Message(bomb), HasSubstr("aliases expanded"));
  EXPECT_THAT(Message("a: &x [*x]"), HasSubstr("alias"));
}

TEST(ParseYaml, RefusesWhatIsNotOneSmallPlainDocument) {
  EXPECT_THAT(Message(std::string(kMaxYamlBytes + 1, ' ')), HasSubstr("at most 262144 bytes"));
  EXPECT_THAT(Message("a: 1\n---\nb: 2\n"), HasSubstr("a second document"));
  EXPECT_THAT(Message("[a]: 1"), HasSubstr("a key that is not plain text"));
  EXPECT_THAT(Message("{a: 1}: 1"), HasSubstr("line 1"));
  EXPECT_THAT(Message(absl::string_view("a: \0b", 5)), HasSubstr("zero byte"));
  EXPECT_THAT(Message("a: b\nc: \xE2\x82"), HasSubstr("line 2: a byte that is not UTF-8"));
  EXPECT_THAT(Message("a: b\nc: \"x\\N\""), HasSubstr("line 2, column 4: the escape \\N"));
  EXPECT_THAT(Message("a: !!binary aGk="), HasSubstr("the tag"));
  EXPECT_THAT(Message("a: 1\na: 2"), HasSubstr("line 2, column 1: the key \"a\" a second time"));
}

// Nothing that fits the size may take long: the patterns are those on which parsers go quadratic.
// Only that they end is checked here; a test's time limit catches the rest.
TEST(ParseYaml, EndsQuicklyOnRepetition) {
  for (const char* pattern :
       {"a: ", "a: b\n",     "- ",       "[",     "{",     "? ", "!",          "&a ",
        "*a ", "\"",         "'",        "\n",    " ",     "#",  "a,",         "{a: [",
        "|\n", "a\n",        "%",        "---\n", "...\n", ": ", "&a a: *a\n", "!!",
        "\\",  "? a\n: b\n", "- a: b\n", "\t",    "<<: "}) {
    const std::string text = Repeat(pattern, int(kMaxYamlBytes / std::strlen(pattern)));
    (void)ParseYaml(text);
  }
  std::string keys;
  for (size_t i = 0; i <= kMaxYamlKeys; ++i) absl::StrAppend(&keys, "k", i, ": 1\n");
  EXPECT_THAT(Message(keys), HasSubstr("more than 1000 keys"));
}

TEST(ParseYaml, SurvivesRandomDamage) {
  const std::string good =
      "name: x\nmodel: {preset: a, overrides: &o {layers: 4}}\nlist:\n  - 1\n  - {b: *o}\n"
      "text: |\n  folded\n  lines\nquoted: \"a\\u0041\\n\"\n# end\n";
  const std::string alphabet = "{}[]:,-&*!|>'\"%@`\\\n\t ?#ax0\x80\xff";
  int parsed = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    std::string text = good;
    const uint64_t edits = 1 + RandomBits(1, i, 0) % 6;
    for (uint64_t e = 0; e < edits; ++e) {
      const size_t at = RandomBits(1, i, 3 * e + 1) % text.size();
      const char c = alphabet[RandomBits(1, i, 3 * e + 2) % alphabet.size()];
      switch (RandomBits(1, i, 3 * e + 3) % 3) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        default:
          text.erase(at, 1 + at % 5);
      }
      if (text.empty()) break;
    }
    parsed += ParseYaml(text).ok();
  }
  EXPECT_GT(parsed, 0);
  EXPECT_LT(parsed, 20'000);
}

}  // namespace
}  // namespace trainyard
