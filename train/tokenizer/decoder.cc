#include "train/tokenizer/decoder.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "train/tokenizer/byte_alphabet.h"

namespace trainyard {
namespace {

// Returns the byte of a token such as <0xE2>.
std::optional<char> ByteOfToken(absl::string_view token) {
  uint32_t byte = 0;
  if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token[5] != '>') return std::nullopt;
  if (!absl::SimpleHexAtoi(token.substr(3, 2), &byte)) return std::nullopt;
  return char(byte);
}

// Bytes in a row that are no characters become U+FFFD, one for each byte.
std::vector<std::string> FallBack(std::vector<std::string> tokens) {
  std::vector<std::string> made;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (IsUtf8(bytes)) {
      made.push_back(bytes);
    } else {
      made.insert(made.end(), bytes.size(), kReplacement);
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<char> byte = ByteOfToken(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    made.push_back(std::move(token));
  }
  flush();
  return made;
}

void Strip(const StripStep& step, std::string& token) {
  absl::string_view rest = token;
  for (size_t i = 0; i < step.start && absl::ConsumePrefix(&rest, step.character); ++i) {
  }
  for (size_t i = 0; i < step.stop && absl::ConsumeSuffix(&rest, step.character); ++i) {
  }
  token = std::string(rest);
}

std::string Unmark(const UnmarkStep& step, absl::string_view token, bool first) {
  std::string text;
  while (!token.empty()) {
    if (absl::ConsumePrefix(&token, step.mark)) {
      if (!first || !step.drops_first) text += ' ';
    } else {
      text += token[0];
      token.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> TokenDecoder::Decode(std::vector<std::string> tokens) const {
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  const size_t most_bytes = MostBytesMadeOf(bytes);
  for (const Step& step : steps_) {
    size_t left_bytes = most_bytes;  // For the tokens of this step that are not yet made.
    if (std::holds_alternative<ByteFallbackStep>(step)) {
      tokens = FallBack(std::move(tokens));
      continue;
    }
    if (std::holds_alternative<FuseStep>(step)) {
      tokens = {absl::StrJoin(tokens, "")};
      continue;
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (const auto* const strip = std::get_if<StripStep>(&step)) {
        Strip(*strip, tokens[i]);
      } else if (const auto* const unmark = std::get_if<UnmarkStep>(&step)) {
        tokens[i] = Unmark(*unmark, tokens[i], i == 0);
      } else if (const auto* const replace = std::get_if<ReplaceStep>(&step)) {
        ASSIGN_OR_RETURN(tokens[i], ReplaceAll(tokens[i], *replace, left_bytes));
        left_bytes -= tokens[i].size();
      } else if (auto bytes = BytesOfAlphabet(tokens[i])) {
        tokens[i] = *std::move(bytes);
      }
    }
  }
  return absl::StrJoin(tokens, "");
}

}  // namespace trainyard
