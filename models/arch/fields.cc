#include "models/arch/fields.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace trainyard {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // Clang 16 does not deduce this by itself.

}  // namespace

FieldValue ValueOf(const FieldRef& field) {
  return std::visit(
      Overloaded{[](const Choice& choice) { return FieldValue(choice.names[choice.index]); },
                 [](const auto* member) { return FieldValue(*member); }},
      field);
}

void Assign(const FieldRef& field, const FieldValue& value) {
  std::visit(Overloaded{[&](const Choice& choice) {
                          const auto& names = choice.names;
                          const auto it =
                              std::find(names.begin(), names.end(), std::get<std::string>(value));
                          if (it != names.end()) choice.set(size_t(it - names.begin()));
                        },
                        [&](auto* member) {
                          using T = std::remove_pointer_t<decltype(member)>;
                          CHECK(std::holds_alternative<T>(value)) << "a value of another type";
                          *member = std::get<T>(value);
                        }},
             field);
}

std::string TextOf(const FieldValue& value) {
  return std::visit(Overloaded{[](bool on) { return std::string(on ? "true" : "false"); },
                               [](const std::string& text) { return text; },
                               [](auto number) { return absl::StrCat(number); }},
                    value);
}

void FieldProblems::Add(absl::string_view field, const absl::AlphaNum& wanted,
                        const absl::AlphaNum& found, const absl::AlphaNum& nearest) {
  wrong_.emplace_back(field);
  violations_.Add(absl::StrCat(path_, path_.empty() ? "" : ".", field), wanted, found, nearest);
}

bool FieldProblems::Legal(std::initializer_list<absl::string_view> fields) const {
  return std::none_of(fields.begin(), fields.end(), [&](absl::string_view field) {
    return std::find(wrong_.begin(), wrong_.end(), field) != wrong_.end();
  });
}

void FieldProblems::Check(const FieldRule& rule, const FieldRef& field) {
  const auto check = [&](auto value, const auto& legal) {
    if (!legal.Holds(value)) Add(rule.name, legal.Words(), value, legal.Nearest(value));
  };
  if (const auto* const* integer = std::get_if<int64_t*>(&field)) check(**integer, rule.whole);
  if (const auto* const* number = std::get_if<double*>(&field)) check(**number, rule.real);
}

int64_t NearestDivisor(int64_t value, int64_t wanted) {
  int64_t best = 1;
  for (int64_t d = 1; d <= value; ++d) {
    if (value % d == 0 && std::abs(d - wanted) <= std::abs(best - wanted)) best = d;
  }
  return best;
}

}  // namespace trainyard
