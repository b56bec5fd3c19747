// Proves that tokens are random and of one form, that a mistyped one is told from a wrong one, and
// that no log shows a secret.

#include "security/tokens.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/security/openssl_program.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr absl::string_view kDigits =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

TEST(Tokens, HaveOneForm) {
  std::set<std::string> ids, secrets;
  for (int i = 0; i < 1000; ++i) {
    const Token token = NewToken().value();
    EXPECT_THAT(token.text, MatchesRegex("ty_[0-9A-Za-z]{8}_[0-9A-Za-z]{49}"));
    EXPECT_EQ(token.text, absl::StrCat("ty_", token.id, "_", token.secret));
    const Token parsed = ParseToken(token.text).value();
    EXPECT_EQ(parsed.id, token.id);
    EXPECT_EQ(parsed.secret, token.secret);
    EXPECT_EQ(parsed.text, token.text);
    ids.insert(token.id);
    secrets.insert(token.secret);
  }
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(secrets.size(), 1000u);
}

// Bug it must catch: some of the random bytes are not used. The secret's number in base 62 must
// have all of its 256 bits, each of them 0 and 1 in turn.
TEST(Tokens, EveryBitOfASecretIsRandom) {
  std::vector<int> ones(256);
  const int tokens = 400;
  for (int i = 0; i < tokens; ++i) {
    std::vector<int> bits(256);  // The lowest first.
    const std::string secret = NewToken()->secret.substr(0, 43);
    for (const char c : secret) {
      size_t carry = kDigits.find(c);
      for (int& bit : bits) {
        carry += 62 * size_t(bit);
        bit = int(carry % 2);
        carry /= 2;
      }
      ASSERT_EQ(carry, 0u) << "more than 256 bits: " << secret;
    }
    for (size_t bit = 0; bit < 256; ++bit) ones[bit] += bits[bit];
  }
  // Fair bits are at most 6.5 standard deviations (10 each) off their mean, but once in 10^7 runs.
  for (size_t bit = 0; bit < 256; ++bit) EXPECT_NEAR(ones[bit], tokens / 2, 65) << bit;
}

TEST(Tokens, EndWithTheCrc32OfWhatIsBefore) {
  const std::string text = NewToken()->text;
  const std::string before = text.substr(0, text.size() - 6);
  uint64_t number = 0;
  for (const char c : text.substr(before.size())) number = 62 * number + kDigits.find(c);
  EXPECT_EQ(number, ::crc32(0, reinterpret_cast<const Bytef*>(before.data()), uInt(before.size())));
}

TEST(Tokens, EverySlipIsNoticedAndTheMessageKeepsTheSecret) {
  const Token token = NewToken().value();
  const auto expect_invalid = [&](const std::string& text) {
    const absl::Status status = ParseToken(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(token.secret.substr(0, 4))));
  };
  for (size_t i = 0; i < token.text.size(); ++i) {
    for (const char c : absl::StrCat(kDigits, "_- \n")) {
      std::string changed = token.text;
      changed[i] = c;
      if (c != token.text[i]) expect_invalid(changed);
    }
    expect_invalid(token.text.substr(0, i));
    expect_invalid(token.text.substr(i + 1));
    std::string swapped = token.text;
    if (i > 0) std::swap(swapped[i], swapped[i - 1]);
    if (swapped != token.text) expect_invalid(swapped);
    expect_invalid(std::string(token.text).insert(i, 1, 'a'));
  }
  expect_invalid("");
  expect_invalid(token.text + "\n");
  expect_invalid(std::string(61, '\xff'));
}

TEST(Tokens, SecretIsHashedBySha256) {
  const Token token = NewToken().value();
  const testing::OpensslProgram openssl;
  openssl.Put("secret", token.secret);
  EXPECT_EQ(HashSecret(token), openssl.Must("dgst -sha256 -r secret").substr(0, 64));
}

TEST(Tokens, SecretsAreTheSameOnlyWhole) {
  const std::string hash = HashSecret(NewToken().value());
  EXPECT_TRUE(SameSecret(hash, std::string(hash)));
  EXPECT_TRUE(SameSecret("", ""));
  EXPECT_FALSE(SameSecret(hash, ""));
  EXPECT_FALSE(SameSecret("", hash));
  EXPECT_FALSE(SameSecret(hash, hash.substr(1)));
  EXPECT_FALSE(SameSecret(hash, hash + hash));
  for (size_t i = 0; i < hash.size(); ++i) {
    std::string other = hash;
    other[i] = char(other[i] ^ 1);
    EXPECT_FALSE(SameSecret(hash, other)) << i;
    EXPECT_FALSE(SameSecret(hash, hash.substr(0, i))) << i;
  }
}

TEST(Redact, KeepsTheIdAndNoSecret) {
  const Token one = NewToken().value(), two = NewToken().value();
  const std::string safe_one = absl::StrCat("ty_", one.id, "_...");
  const std::string safe_two = absl::StrCat("ty_", two.id, "_...");
  EXPECT_EQ(Redact(one.text), safe_one);
  EXPECT_EQ(Redact(absl::StrCat("a ", one.text, " b\n\"", two.text, "\",")),
            absl::StrCat("a ", safe_one, " b\n\"", safe_two, "\","));
  EXPECT_EQ(Redact(absl::StrCat("Bearer", one.text)), absl::StrCat("Bearer", safe_one));
  EXPECT_EQ(Redact(absl::StrCat(one.text, "_old")), safe_one);
  EXPECT_EQ(Redact(absl::StrCat(one.text, two.text)), safe_one);
  EXPECT_EQ(Redact(absl::StrCat(one.text, "-", two.text)), absl::StrCat(safe_one, "-", safe_two));
  EXPECT_EQ(Redact(absl::StrCat("ty_", one.text)), "ty_...");
  EXPECT_EQ(Redact(absl::StrCat("party_", one.text)), "party_...");
}

// What users paste is often not quite a token.
TEST(Redact, KnowsDamagedTokens) {
  const Token token = NewToken().value();
  const std::string secret = token.secret;
  EXPECT_EQ(Redact(absl::StrCat("ty_", token.id, secret)), "ty_...");
  EXPECT_EQ(Redact(absl::StrCat("ty_short_", secret)), "ty_...");
  EXPECT_EQ(Redact(absl::StrCat("ty__", secret)), "ty_...");
  EXPECT_EQ(Redact(absl::StrCat("ty_", token.id, "__", secret, "x")),
            absl::StrCat("ty_", token.id, "_..."));
  for (size_t cut = 1; cut <= 29; ++cut) {
    EXPECT_THAT(Redact(token.text.substr(0, token.text.size() - cut)),
                absl::StrCat("ty_", token.id, "_..."));
  }
  EXPECT_LT(Redact(token.text.substr(0, 31)).size(), 32u) << "19 characters say little";
}

TEST(Redact, LeavesOtherTextsAlone) {
  for (const std::string& text :
       {std::string(), std::string("ty_"), std::string("quality_training_set_of_the_city_hall"),
        std::string("ty_ ty_ ty__"), std::string("ty_4fJk02Lq_..."), std::string(200, 'x'),
        std::string("security_test:Tokens\0\xff", 22)}) {
    EXPECT_EQ(Redact(text), text);
  }
}

// Bug it must catch: each of many prefixes looks at all the text behind it.
TEST(Redact, TakesTimeInProportionToTheText) {
  std::string text;
  for (int i = 0; i < 2'000'000; ++i) text += "ty_";
  EXPECT_EQ(Redact(text), text);
}

}  // namespace
}  // namespace trainyard
