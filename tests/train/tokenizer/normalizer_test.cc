// Proves that normal forms are those of Hugging Face's `tokenizers`, which have tables of
// Unicode 9. golden_test.cc compares older characters.

#include "train/tokenizer/normalizer.h"

#include <gmock/gmock.h>

#include <string>

namespace trainyard {
namespace {

std::string Formed(NormalForm form, const std::string& text) {
  Normalizer normalizer;
  normalizer.Add(FormStep(form));
  std::string memory;
  const auto formed = normalizer.Apply(text, memory);
  EXPECT_TRUE(formed.ok()) << formed.status();
  return std::string(formed.value_or("none"));
}

// The wanted texts are those of `tokenizers` 0.23.3.
TEST(Normalizer, CharactersThatCameAfterUnicode9StayAsTheyAre) {
  const std::string era = "\u32FF", modifier = "\U0001E030", digit = "\U0001FBF0";
  for (const NormalForm form : {NormalForm::kNfkc, NormalForm::kNfkd}) {
    for (const std::string& text : {era, modifier, digit}) EXPECT_EQ(Formed(form, text), text);
    // What stands beside them is changed.
    EXPECT_EQ(Formed(form, "\uFF21" + era + "\u32FE"), "A" + era + "\u30F2");
  }
  const std::string parts = "\U00011935\U00011930", composed = "\U00011938";
  EXPECT_EQ(Formed(NormalForm::kNfc, parts), parts);
  EXPECT_EQ(Formed(NormalForm::kNfd, composed), composed);
}

TEST(Normalizer, MarksThatCameAfterUnicode9DoNotMove) {
  // U+1DF6 (Unicode 10) has a class above that of U+0323.
  EXPECT_EQ(Formed(NormalForm::kNfd, "a\u1DF6\u0323"), "a\u1DF6\u0323");
  EXPECT_EQ(Formed(NormalForm::kNfc, "a\u1DF6\u0301"), "a\u1DF6\u0301");
  EXPECT_EQ(Formed(NormalForm::kNfd, "a\u0301\u0323"), "a\u0323\u0301");
}

}  // namespace
}  // namespace trainyard
