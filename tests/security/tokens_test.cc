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

}  // namespace
}  // namespace trainyard
