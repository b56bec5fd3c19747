#include <bitset>

#include "absl/strings/str_cat.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "train/tokenizer/expression.h"
#include "train/tokenizer/expression_parser.h"

namespace trainyard {
namespace {

constexpr size_t kMostNodes = 10'000;
constexpr size_t kMostPatternBytes = 16 << 10;

absl::Status CheckSize(absl::string_view pattern) {
  if (pattern.size() <= kMostPatternBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "wanted an expression of at most ", kMostPatternBytes, " bytes, found ", pattern.size()));
}

// The first byte of a code point in UTF-8.
uint8_t LeadByte(uint32_t code_point) {
  if (code_point < 0x80) return uint8_t(code_point);
  if (code_point < 0x800) return uint8_t(0xC0 | code_point >> 6);
  if (code_point < 0x10000) return uint8_t(0xE0 | code_point >> 12);
  return uint8_t(0xF0 | code_point >> 18);
}

}  // namespace

// Makes nodes of a tree from its end to its beginning, because a node knows what follows.
class ExpressionCompiler {
 public:
  absl::StatusOr<Expression> Compile(const std::vector<ExpressionSequence>& options) {
    expression_.nodes_.emplace_back();
    starts_.push_back({.empty = true});
    if (options.size() > Expression::kMostOptions) {
      return absl::InvalidArgumentError(absl::StrCat("wanted at most ", Expression::kMostOptions,
                                                     " alternatives, found ", options.size()));
    }
    for (const ExpressionSequence& option : options) {
      const uint32_t root = Sequence(option, 0);
      if (starts_[root].empty) {
        return absl::InvalidArgumentError(
            "wanted an expression that never matches the empty text, found one that may");
      }
      for (size_t byte = 0; byte < 256; ++byte) {
        if (starts_[root].bytes[byte]) {
          expression_.viable_[byte] |= uint64_t{1} << expression_.roots_.size();
        }
      }
      expression_.roots_.push_back(root);
    }
    if (expression_.nodes_.size() > kMostNodes) {
      return absl::InvalidArgumentError(absl::StrCat("wanted an expression of at most ", kMostNodes,
                                                     " parts, found ", expression_.nodes_.size()));
    }
    return std::move(expression_);
  }

 private:
  // How what begins at a node may begin.
  struct Start {
    std::bitset<256> bytes = {};
    bool empty = false;  // It may match the empty text.
  };

  uint32_t Add(Expression::Node node, const Start& start) {
    expression_.nodes_.push_back(std::move(node));
    starts_.push_back(start);
    return uint32_t(starts_.size() - 1);
  }

  uint32_t Sequence(const ExpressionSequence& sequence, uint32_t next) {
    for (auto term = sequence.rbegin(); term != sequence.rend(); ++term) next = Term(*term, next);
    return next;
  }

  uint32_t Term(const ExpressionTerm& term, uint32_t next) {
    if (term.kind == ExpressionTerm::Kind::kSet) return Set(term, next);
    const bool looks = term.kind == ExpressionTerm::Kind::kLook;
    std::vector<uint32_t> options;
    for (const ExpressionSequence& one : term.options) {
      options.push_back(Sequence(one, looks ? 0 : next));
    }
    if (term.min == 0) options.push_back(next);
    const uint32_t inner = options.size() == 1 ? options[0] : Options(std::move(options));
    if (!looks) return inner;
    // What is looked for may leave fewer beginnings than these. There are never too few.
    return Add(
        {.kind = Expression::Kind::kLook, .negative = term.negative, .inner = inner, .next = next},
        starts_[next]);
  }

  uint32_t Options(std::vector<uint32_t> options) {
    Start start;
    for (const uint32_t option : options) {
      start.bytes |= starts_[option].bytes;
      start.empty |= starts_[option].empty;
    }
    return Add({.kind = Expression::Kind::kOptions, .options = std::move(options)}, start);
  }

  uint32_t Set(const ExpressionTerm& term, uint32_t next) {
    Start start;
    if (term.min == 0) start = starts_[next];
    for (const auto& [first, last] : term.set.ranges()) {
      for (int lead = LeadByte(first); lead <= LeadByte(last); ++lead)
        start.bytes.set(size_t(lead));
    }
    using Repeat = Expression::Repeat;
    const Repeat repeat = term.repeat == ExpressionTerm::Repeat::kLazy         ? Repeat::kLazy
                          : term.repeat == ExpressionTerm::Repeat::kPossessive ? Repeat::kPossessive
                                                                               : Repeat::kGreedy;
    return Add({.kind = Expression::Kind::kSet,
                .repeat = repeat,
                .set = SetNumber(term.set),
                .min = term.min,
                .max = term.max,
                .next = next},
               start);
  }

  // Equal sets are kept once.
  uint32_t SetNumber(const CodePointRanges& set) {
    for (size_t i = 0; i < known_.size(); ++i) {
      if (known_[i].ranges() == set.ranges()) return uint32_t(i);
    }
    known_.push_back(set);
    expression_.sets_.emplace_back(set);
    return uint32_t(known_.size() - 1);
  }

  Expression expression_;
  std::vector<Start> starts_;  // Of each node.
  std::vector<CodePointRanges> known_;
};

absl::StatusOr<Expression> Expression::Compile(absl::string_view pattern) {
  RETURN_IF_ERROR(CheckSize(pattern));
  ASSIGN_OR_RETURN(const std::vector<ExpressionSequence> options, ParseExpression(pattern));
  auto compiled = ExpressionCompiler().Compile(options);
  if (compiled.ok()) return compiled;
  return absl::InvalidArgumentError(
      absl::StrCat(compiled.status().message(), ": ", Shown(ValidUtf8(pattern))));
}

absl::StatusOr<Expression> Expression::Literally(absl::string_view text) {
  RETURN_IF_ERROR(CheckSize(text));
  if (!IsUtf8(text)) return absl::InvalidArgumentError("wanted UTF-8");
  ExpressionSequence sequence;
  for (size_t at = 0; at < text.size(); at += Utf8Bytes(text[at])) {
    const uint32_t c = DecodeUtf8(text.data() + at);
    sequence.push_back({.set = {{c, c}}});
  }
  return ExpressionCompiler().Compile({sequence});
}

}  // namespace trainyard
