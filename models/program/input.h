// The inputs that a model declares, and the data that the host writes to them before each
// micro-batch.

#pragma once

#include <algorithm>
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
    kToken,   // The context ranks of a sequence divide its units.
    kSample,  // All tensor and context ranks of a sequence have the unit.
  };
  enum class Kind : uint8_t {
    kInteger,  // i32.
    kReal,     // The dtype of activations.
    kExact,    // f64 in every precision.
  };
  std::string name;
  Unit unit = Unit::kToken;
  Kind kind = Kind::kInteger;
  Shape shape = {};   // Shape of one unit; {}: one element.
  int64_t limit = 0;  // Every integer is below it, for example the size of a vocabulary. Reals: 0.
  bool operator==(const InputSpec&) const = default;
};

// The input of data whose sequences hold several documents: for each token, the position in the
// sequence at which the token's document begins.
inline constexpr char kDocumentBegins[] = "document_begins";
inline InputSpec DocumentBegins(int64_t sequence) {
  return {.name = kDocumentBegins, .limit = sequence};
}

// The input of data of which dropout drops some: for each token, the number of its sample in the
// global batch.
inline constexpr char kSampleNumbers[] = "sample_numbers";
inline InputSpec SampleNumbers() { return {.name = kSampleNumbers, .limit = int64_t{1} << 31}; }

// The input of a training program that goes on with texts (RecordOptions::last_logits), of which
// each of the first sequences of a micro-batch holds one: LastRowsOf(micro-batch) integers. Each is
// the row of the text's last token in this rank's part of the head's input, or the number of rows
// of this part if another rank has the token.
inline constexpr char kLastRows[] = "last_rows";
inline constexpr int64_t kMostLastRows = 8;
inline int64_t LastRowsOf(int64_t micro_batch) { return std::min(micro_batch, kMostLastRows); }

// The inputs of an inference program that keeps what it has read (RecordOptions::cache), and reads
// the newest tokens of texts. Text i has the rows from i R on of each cache of keys and values,
// where R is RowsOfText(RecordOptions::cache), and the row i of each cache of states.
inline constexpr char kCachePositions[] = "cache_positions";  // The position of each new token.
// The same of this tensor rank's rows, where ranks divide them.
inline constexpr char kOwnCachePositions[] = "own_cache_positions";
// The row of the caches of keys and values that each new token gets; -1: nobody reads the token.
// The first row of a text begins the text anew.
inline constexpr char kCacheRows[] = "cache_rows";
// The rows [begin, end) that a new token sees: of all rows where tokens of one text are read, and
// of the text's rows where a token of each text is read. The window of an attention follows the
// name of its begins; 0: all earlier positions.
inline constexpr char kCacheBegins[] = "cache_begins_";
inline constexpr char kCacheEnds[] = "cache_ends";
// The caches themselves, each followed by a number. The host sets them to zero once, since a row
// that nobody sees must be finite. All other inputs exist once for each chunk.
inline constexpr char kCache[] = "cache_of_";
// Attention goes through keys in blocks from the first row on. Texts begin at a multiple of any
// block, so what a text is told does not depend on its place.
constexpr int64_t RowsOfText(int64_t cache) { return (cache + 255) / 256 * 256; }

// The inputs of data whose documents are answers, of which pairs belong together: the side of each
// token in its sample, and its part of the log-probability that the reference gives to its side
// (kernels/loss/preference.h).
inline constexpr char kPreferenceSides[] = "preference_sides";
inline constexpr char kReferenceLogProbs[] = "reference_log_probs";
inline std::vector<InputSpec> PreferenceInputs(int64_t sequence) {
  return {{.name = kPreferenceSides, .limit = sequence + 1},
          {.name = kReferenceLogProbs, .kind = InputSpec::Kind::kExact}};
}

// Returns the input with this name, or null if none has the name.
inline const InputSpec* FindInput(const std::vector<InputSpec>& inputs, absl::string_view name) {
  for (const InputSpec& input : inputs) {
    if (input.name == name) return &input;
  }
  return nullptr;
}

// Returns a text for people: "tokens (integer, by token)", "noise (real [16], by token)".
inline std::string ToString(const InputSpec& input) {
  constexpr const char* kKinds[] = {"integer", "real", "f64"};
  std::string dims;
  for (int i = 0; i < input.shape.rank(); ++i) {
    absl::StrAppend(&dims, i == 0 ? " [" : ", ", input.shape[i]);
  }
  return absl::StrCat(input.name, " (", kKinds[size_t(input.kind)], dims, dims.empty() ? "" : "]",
                      input.unit == InputSpec::Unit::kToken ? ", by token" : ", by sample", ")");
}

// The data of one input for one micro-batch, in the order of the samples. Reals are rounded to the
// dtype of the input.
using InputData = std::variant<std::vector<int32_t>, std::vector<float>, std::vector<double>>;

}  // namespace trainyard
