// What a model declares that it reads, and what the host writes there before each micro-batch.

#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/device/tensor.h"

namespace trainyard {

struct InputSpec {
  enum class Unit : uint8_t {
    kToken,   // Each rank has those of its rows of the sequences.
    kSample,  // All tensor and context ranks of a sequence have it.
  };
  enum class Kind : uint8_t {
    kInteger,  // i32.
    kReal,     // In the format of activations.
  };
  std::string name;
  Unit unit = Unit::kToken;
  Kind kind = Kind::kInteger;
  Shape shape = {};   // Of one unit; {}: one element.
  int64_t limit = 0;  // Every integer is below it: the size of a vocabulary, say. 0: of reals.
  bool operator==(const InputSpec&) const = default;
};

// Of data whose sequences hold several documents: for each token, the position in the sequence at
// which its document begins.
inline constexpr char kDocumentBegins[] = "document_begins";
inline InputSpec DocumentBegins(int64_t sequence) {
  return {.name = kDocumentBegins, .limit = sequence};
}

// Null where none has the name.
inline const InputSpec* FindInput(const std::vector<InputSpec>& inputs, absl::string_view name) {
  for (const InputSpec& input : inputs) {
    if (input.name == name) return &input;
  }
  return nullptr;
}

// "tokens (integer, by token)", "noise (real [16], by token)".
inline std::string ToString(const InputSpec& input) {
  std::string dims;
  for (int i = 0; i < input.shape.rank(); ++i) {
    absl::StrAppend(&dims, i == 0 ? " [" : ", ", input.shape[i]);
  }
  return absl::StrCat(input.name, " (",
                      input.kind == InputSpec::Kind::kInteger ? "integer" : "real", dims,
                      dims.empty() ? "" : "]",
                      input.unit == InputSpec::Unit::kToken ? ", by token" : ", by sample", ")");
}

// Of one micro-batch, in the order of its samples: integers, or reals, which are rounded to the
// input's dtype.
using InputData = std::variant<std::vector<int32_t>, std::vector<float>>;

}  // namespace trainyard
