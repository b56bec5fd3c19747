#include "train/tokenizer/expression_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/utf8.h"

namespace trainyard {
namespace {

constexpr uint32_t kMostRepeats = 1000;
constexpr int kDeepestGroups = 16;

class ExpressionParser {
 public:
  explicit ExpressionParser(absl::string_view pattern) : pattern_(pattern), left_(pattern) {}

  absl::StatusOr<std::vector<ExpressionSequence>> Parse() {
    if (!IsUtf8(pattern_)) return Refuse("UTF-8");
    // At the front, the option is for everything that follows. Elsewhere Ruby has rules of its own.
    ignores_case_ = absl::ConsumePrefix(&left_, "(?i)");
    ASSIGN_OR_RETURN(auto options, Options(0));
    if (!left_.empty()) return Refuse("an expression that ends here");
    return options;
  }

 private:
  absl::StatusOr<std::vector<ExpressionSequence>> Options(int depth) {
    std::vector<ExpressionSequence> options(1);
    while (!left_.empty() && left_[0] != ')') {
      if (absl::ConsumePrefix(&left_, "|")) {
        options.emplace_back();
        last_caseless_ = 0;
        continue;
      }
      ASSIGN_OR_RETURN(ExpressionTerm term, Term(depth));
      RETURN_IF_ERROR(Repeated(term));
      options.back().push_back(std::move(term));
    }
    return options;
  }

  absl::StatusOr<ExpressionTerm> Term(int depth) {
    ExpressionTerm term;
    switch (left_[0]) {
      case '(':
        return Group(depth);
      case '[': {
        ASSIGN_OR_RETURN(term.set, Class(0));
        return term;
      }
      case '.':
        left_.remove_prefix(1);
        term.set = CodePointRanges{{'\n', '\n'}}.Complement();
        return term;
      case '\\': {
        ASSIGN_OR_RETURN(term.set, Escape());
        if (!ignores_case_) return term;
        if (IsCharacter(term.set)) return Literal(term.set.ranges()[0].first);
        if (IsOfOneCase(term.set)) return Refuse("no class of one case after (?i");
        return term;
      }
      case '*':
      case '+':
      case '?':
      case '{':
      case '^':
      case '$':
      case ']':
      case '}':
        return Refuse("a character, a class or a group");
      default:
        break;
    }
    return Literal(Take());
  }

  absl::StatusOr<ExpressionTerm> Literal(uint32_t c) {
    ExpressionTerm term;
    if (!ignores_case_) {
      term.set.Add(c, c);
      return term;
    }
    // Some letters in a row equal one character in another case: ss is also U+00DF. Oniguruma
    // knows these.
    const char last = std::exchange(last_caseless_, absl::ascii_tolower(char(c)));
    const std::string two = {last, last_caseless_};
    for (const char* folded : {"ss", "st", "ff", "fi", "fl"}) {
      if (two == folded)
        return Refuse("no letters after (?i: that have a ligature", two.size() - 1);
    }
    term.set.Add(c, c);
    RETURN_IF_ERROR(AddOtherCase(term.set));
    return term;
  }

  absl::StatusOr<ExpressionTerm> Group(int depth) {
    if (depth == kDeepestGroups) return Refuse("fewer groups in each other");
    ExpressionTerm term{.kind = ExpressionTerm::Kind::kGroup};
    const bool outer_ignores_case = ignores_case_;
    if (absl::ConsumePrefix(&left_, "(?=")) {
      term.kind = ExpressionTerm::Kind::kLook;
    } else if (absl::ConsumePrefix(&left_, "(?!")) {
      term.kind = ExpressionTerm::Kind::kLook;
      term.negative = true;
    } else if (absl::ConsumePrefix(&left_, "(?i:")) {
      ignores_case_ = true;
    } else if (!absl::ConsumePrefix(&left_, "(?:")) {
      if (absl::StartsWith(left_, "(?")) return Refuse("(?:, (?i:, (?= or (?!");
      left_.remove_prefix(1);
    }
    last_caseless_ = 0;
    ASSIGN_OR_RETURN(term.options, Options(depth + 1));
    if (!absl::ConsumePrefix(&left_, ")")) return Refuse("a )");
    ignores_case_ = outer_ignores_case;
    last_caseless_ = 0;
    const bool is_set = term.kind == ExpressionTerm::Kind::kGroup && term.options.size() == 1 &&
                        term.options[0].size() == 1 &&
                        term.options[0][0].kind == ExpressionTerm::Kind::kSet &&
                        term.options[0][0].min == 1 && term.options[0][0].max == 1;
    return is_set ? ExpressionTerm(term.options[0][0]) : term;
  }

  absl::Status Repeated(ExpressionTerm& term) {
    const absl::string_view from = left_;
    bool counted = false;
    if (absl::ConsumePrefix(&left_, "*")) {
      term.min = 0;
      term.max = kUnlimited;
    } else if (absl::ConsumePrefix(&left_, "+")) {
      term.max = kUnlimited;
    } else if (absl::ConsumePrefix(&left_, "?")) {
      term.min = 0;
    } else if (absl::ConsumePrefix(&left_, "{")) {
      counted = true;
      RETURN_IF_ERROR(Counts(term));
    } else {
      return absl::OkStatus();
    }
    const absl::string_view after = left_;
    if (absl::ConsumePrefix(&left_, "?")) {
      term.repeat = ExpressionTerm::Repeat::kLazy;
    } else if (absl::ConsumePrefix(&left_, "+")) {
      term.repeat = ExpressionTerm::Repeat::kPossessive;
    }
    const bool again = !left_.empty() && absl::StrContains("*+?{", left_[0]);
    if (again || (counted && term.repeat != ExpressionTerm::Repeat::kGreedy)) {
      left_ = again ? left_ : after;
      return Refuse("nothing after a number of times");  // Ruby repeats what was repeated.
    }
    const bool once = term.max == 1 && term.repeat == ExpressionTerm::Repeat::kGreedy;
    const bool legal = term.kind == ExpressionTerm::Kind::kSet ||
                       (term.kind == ExpressionTerm::Kind::kGroup && once);
    if (!legal) {
      left_ = from;
      return Refuse("a group once or, with ?, perhaps");
    }
    return absl::OkStatus();
  }

  absl::Status Counts(ExpressionTerm& term) {
    const size_t close = left_.find('}');
    const absl::string_view inside = left_.substr(0, std::min(close, left_.size()));
    const size_t comma = inside.find(',');
    const absl::string_view least = inside.substr(0, comma);
    const absl::string_view most =
        comma == absl::string_view::npos ? least : inside.substr(comma + 1);
    bool legal = close != absl::string_view::npos && ReadCount(least, 0, term.min) &&
                 ReadCount(most, kUnlimited, term.max) && inside != "" && inside != ",";
    legal &= term.max == kUnlimited || (term.min <= term.max && term.max > 0);
    if (!legal) return Refuse(absl::StrCat("{n}, {n,} or {n,m} of 0 to ", kMostRepeats));
    left_.remove_prefix(close + 1);
    return absl::OkStatus();
  }

  static bool ReadCount(absl::string_view digits, uint32_t if_empty, uint32_t& count) {
    count = if_empty;
    if (digits.empty()) return true;
    return std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
           absl::SimpleAtoi(digits, &count) && count <= kMostRepeats;
  }

  // [...], with other classes inside. A part after && keeps what both have.
  absl::StatusOr<CodePointRanges> Class(int depth) {
    if (depth == kDeepestGroups) return Refuse("fewer classes in each other");
    left_.remove_prefix(1);
    const bool negative = absl::ConsumePrefix(&left_, "^");
    CodePointRanges set, before;
    bool both = false;
    for (bool first = true; !absl::StartsWith(left_, "]") || first; first = false) {
      if (left_.empty() || (first && left_[0] == ']')) return Refuse("a class with an end");
      if (absl::ConsumePrefix(&left_, "&&")) {
        before = both ? Both(before, set) : std::move(set);
        both = true;
        set = CodePointRanges();
        continue;
      }
      if (absl::StartsWith(left_, "[:")) return Refuse("no class of POSIX");
      if (left_[0] == '[') {
        ASSIGN_OR_RETURN(const CodePointRanges inner, Class(depth + 1));
        set.Add(inner);
        continue;
      }
      RETURN_IF_ERROR(AddClassMember(set));
    }
    left_.remove_prefix(1);
    if (both) set = Both(before, set);
    if (ignores_case_) {
      if (negative) return Refuse("no [^ after (?i");
      RETURN_IF_ERROR(AddOtherCase(set));
    }
    return negative ? set.Complement() : set;
  }

  static CodePointRanges Both(const CodePointRanges& a, const CodePointRanges& b) {
    return a.Without(b.Complement());
  }

  static bool IsCharacter(const CodePointRanges& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].second;
  }

  // Whether the set has a letter without its other case.
  static bool IsOfOneCase(const CodePointRanges& set) {
    const CodePointSet letters(set);
    for (uint8_t c = 'a'; c <= 'z'; ++c) {
      if (letters.ContainsAscii(c) != letters.ContainsAscii(c ^ 0x20)) return true;
    }
    return false;
  }

  // Adds a character, a range of two, or what an escape stands for.
  absl::Status AddClassMember(CodePointRanges& set) {
    CodePointRanges one;
    if (left_[0] == '\\') {
      ASSIGN_OR_RETURN(one, Escape());
    } else {
      const uint32_t c = Take();
      one.Add(c, c);
    }
    const bool is_character = IsCharacter(one);
    const bool is_range = is_character && left_.size() > 1 && left_[0] == '-' && left_[1] != ']';
    if (!is_range) {
      // What a - after a class means depends on the library.
      if (!is_character && left_.size() > 1 && left_[0] == '-' && left_[1] != ']') {
        return Refuse("no - after a class");
      }
      set.Add(one);
      return absl::OkStatus();
    }
    left_.remove_prefix(1);
    uint32_t last = left_[0];
    if (last == '[') return Refuse("a character at the end of a range");
    if (last == '\\') {
      ASSIGN_OR_RETURN(const CodePointRanges end, Escape());
      last = end.ranges()[0].first;
      if (end.ranges().size() != 1 || last != end.ranges()[0].second) {
        return Refuse("a character at the end of a range");
      }
    } else {
      last = Take();
    }
    if (last < one.ranges()[0].first) return Refuse("a range that ends after its beginning");
    set.Add(one.ranges()[0].first, last);
    return absl::OkStatus();
  }

  // What begins with a backslash.
  absl::StatusOr<CodePointRanges> Escape() {
    const absl::string_view from = left_;
    left_.remove_prefix(1);
    if (left_.empty()) return Refuse("a character after \\");
    const char kind = left_[0];
    const auto one = [](uint32_t c) { return CodePointRanges{{c, c}}; };
    if (!absl::ascii_isalnum(kind)) return one(Take());
    left_.remove_prefix(1);
    switch (kind) {
      case 's':
        return WhiteSpace();
      case 'S':
        return WhiteSpace().Complement();
      case 'd':
        return PropertyRanges("Nd");
      case 'D':
        return PropertyRanges("Nd").value().Complement();
      case 'p':
      case 'P':
        return Property(kind == 'P');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'x':
      case 'u': {
        const bool braces = kind == 'x' && absl::ConsumePrefix(&left_, "{");
        const size_t digits = braces ? left_.find('}') : kind == 'x' ? 2 : 4;
        uint32_t c = 0;
        const bool legal = digits <= 8 && digits <= left_.size() &&
                           absl::SimpleHexAtoi(left_.substr(0, digits), &c) && c < kCodePoints &&
                           (braces || kind == 'u' || c < 0x80);
        if (!legal) return Refuse("a code point in hexadecimal digits");
        left_.remove_prefix(digits + (braces ? 1 : 0));
        return one(c);
      }
      default:
        left_ = from;
        return Refuse("\\s \\S \\d \\D \\p \\P \\n \\r \\t \\f \\x \\u or an escaped mark");
    }
  }

  absl::StatusOr<CodePointRanges> Property(bool negative) {
    const size_t close = left_.find('}');
    if (!absl::ConsumePrefix(&left_, "{") || close == absl::string_view::npos) {
      return Refuse("{ and a name after \\p");
    }
    absl::string_view name = left_.substr(0, close - 1);
    if (absl::ConsumePrefix(&name, "^")) negative = !negative;
    const auto set = PropertyRanges(name);
    if (!set.ok()) return Refuse("a general category in one or two letters (L, Nd) or Han");
    left_.remove_prefix(close);
    return negative ? set->Complement() : *set;
  }

  // ASCII alone: other scripts have rules that differ between libraries.
  absl::Status AddOtherCase(CodePointRanges& set) {
    CodePointRanges others;
    for (const auto& [first, last] : set.ranges()) {
      if (last >= 0x80) return Refuse("ASCII alone after (?i");
      for (uint32_t c = first; c <= last; ++c) {
        if (absl::ascii_isalpha(uint8_t(c))) others.Add(c ^ 0x20, c ^ 0x20);
        if ((c | 0x20) == 'k') others.Add(0x212A, 0x212A);  // The sign of Kelvin.
        if ((c | 0x20) == 's') others.Add(0x17F, 0x17F);    // The long s.
      }
    }
    set.Add(others);
    return absl::OkStatus();
  }

  uint32_t Take() {
    const uint32_t c = DecodeUtf8(left_.data());
    left_.remove_prefix(Utf8Bytes(left_[0]));
    return c;
  }

  absl::Status Refuse(absl::string_view wanted, size_t back = 0) const {
    const size_t at = pattern_.size() - left_.size() - back;
    absl::string_view found = pattern_.substr(at, 12);
    while (!found.empty() && !IsUtf8(found)) found.remove_suffix(1);
    return absl::InvalidArgumentError(
        absl::StrCat("wanted ", wanted, ", found ",
                     at == pattern_.size() ? "the end" : absl::StrCat("'", found, "'"), " at byte ",
                     at, " of the expression ", Shown(ValidUtf8(pattern_))));
  }

  const absl::string_view pattern_;
  absl::string_view left_;
  bool ignores_case_ = false;
  char last_caseless_ = 0;  // The literal before this place, in a part that ignores case.
};

}  // namespace

absl::StatusOr<std::vector<ExpressionSequence>> ParseExpression(absl::string_view pattern) {
  return ExpressionParser(pattern).Parse();
}

}  // namespace trainyard
