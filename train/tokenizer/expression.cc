#include "train/tokenizer/expression.h"

#include <bit>

namespace trainyard {
namespace {

// Ordinary expressions take about ten steps for each byte.
constexpr int64_t kFewestSteps = 1'000'000;
constexpr int64_t kStepsPerByte = 256;

}  // namespace

Expression::Finder::Finder(const Expression& expression, absl::string_view text)
    : expression_(expression),
      text_(text),
      steps_left_(kFewestSteps + kStepsPerByte * int64_t(text.size())) {}

bool Expression::Finder::Next(TextRange& match) {
  const char* const base = text_.data();
  for (; at_ < text_.size(); at_ += Utf8Bytes(text_[at_])) {
    uint64_t viable = expression_.viable_[uint8_t(text_[at_])];
    if (viable == 0) continue;
    for (; viable != 0; viable &= viable - 1) {
      const uint32_t root = expression_.roots_[size_t(std::countr_zero(viable))];
      const char* const end = Run(root, base + at_);
      if (steps_left_ < 0) {
        gave_up_ = true;
        at_ = text_.size();
        return false;
      }
      if (end == nullptr) continue;
      match = {at_, size_t(end - base)};
      at_ = match.end;
      return true;
    }
  }
  return false;
}

// Returns where a match from `at` ends, or null. The depth of the recursion is at most the number
// of nodes, because no group repeats.
const char* Expression::Finder::Run(uint32_t index, const char* at) {
  const char* const end = text_.data() + text_.size();
  for (;;) {
    const Node& node = expression_.nodes_[index];
    if (--steps_left_ < 0) return nullptr;
    switch (node.kind) {
      case Kind::kAccept:
        return at;
      case Kind::kOptions:
        for (size_t i = 0; i + 1 < node.options.size(); ++i) {
          if (const char* const found = Run(node.options[i], at)) return found;
        }
        index = node.options.back();
        continue;
      case Kind::kLook:
        if ((Run(node.inner, at) != nullptr) == node.negative) return nullptr;
        index = node.next;
        continue;
      case Kind::kSet:
        break;
    }
    const CodePointSet& set = expression_.sets_[node.set];
    const auto step = [&] {  // Over one character of the set.
      if (at == end) return false;
      const uint8_t byte = uint8_t(*at);
      if (byte < 0x80) {
        if (!set.ContainsAscii(byte)) return false;
        ++at;
        return true;
      }
      if (!set.Contains(DecodeUtf8(at))) return false;
      at += Utf8Bytes(*at);
      return true;
    };
    uint32_t count = 0;
    for (; count < node.min; ++count) {
      if (!step()) return nullptr;
    }
    const char* const least = at;
    if (node.repeat == Repeat::kLazy) {
      for (;; ++count) {
        if (const char* const found = Run(node.next, at)) return found;
        if (steps_left_ < 0 || count == node.max || !step()) return nullptr;
      }
    }
    while (count < node.max && step()) ++count;
    steps_left_ -= count;
    if (node.repeat == Repeat::kGreedy) {
      while (at > least) {
        if (const char* const found = Run(node.next, at)) return found;
        if (steps_left_ < 0) return nullptr;
        do {
          --at;
        } while ((uint8_t(*at) & 0xC0) == 0x80);
      }
    }
    index = node.next;
  }
}

}  // namespace trainyard
