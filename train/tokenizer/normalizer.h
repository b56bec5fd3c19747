// What happens to a text before it is cut into words: Unicode normal forms, and replacements.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/tokenizer/code_points.h"
#include "train/tokenizer/expression.h"

namespace trainyard {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Puts texts into a normal form (UAX #15) as Hugging Face's `tokenizers` do, by tables of Unicode
// 9: characters that came later stay as they are, where they are. Immutable and thread-safe.
class FormStep {
 public:
  explicit FormStep(NormalForm form);
  absl::StatusOr<std::string> Apply(absl::string_view text) const;
  // Whether every character of the text stays as it is, whatever stands beside it.
  bool LeavesAlone(absl::string_view text) const;

 private:
  NormalForm form_;
  const CodePointSet* stable_;  // One for all steps of a form.
};

struct PrependStep {  // Nothing is prepended to an empty text.
  std::string text;
};

struct ReplaceStep {
  std::shared_ptr<const Expression> what;
  std::string with;
};

// Immutable and thread-safe.
class Normalizer {
 public:
  using Step = std::variant<FormStep, PrependStep, ReplaceStep>;

  template <typename T>
  void Add(T step) {
    steps_.emplace_back(std::in_place_type<T>, std::move(step));
  }
  bool empty() const { return steps_.empty(); }

  // Returns the normalized text: valid UTF-8 as `text` must be. It is `text` itself, or lies in
  // `memory`. RESOURCE_EXHAUSTED: an expression takes too many steps, or the text becomes longer
  // than MostBytesMadeOf.
  absl::StatusOr<absl::string_view> Apply(absl::string_view text, std::string& memory) const;

 private:
  std::vector<Step> steps_;
};

// What steps may make of a text at most. Else a few lines of a tokenizer.json could fill the
// memory.
size_t MostBytesMadeOf(size_t bytes);
absl::Status TooLong(size_t most_bytes);  // RESOURCE_EXHAUSTED.

// Replaces all matches. RESOURCE_EXHAUSTED as above, with the limit `most_bytes`.
absl::StatusOr<std::string> ReplaceAll(absl::string_view text, const ReplaceStep& step,
                                       size_t most_bytes);

}  // namespace trainyard
