#include "train/hf/widen_rank.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "common/check.h"
#include "models/program/low_rank.h"
#include "train/checkpoint/target_box.h"

namespace trainyard {
namespace {

// Whether each product is a number of this dtype.
bool Multiply(double factor, DType dtype, std::vector<char>& values) {
  const size_t count = values.size() / SizeOf(dtype);
  const int64_t elements = int64_t(count);
  std::vector<double> numbers(count), products(count);
  ConvertNumbers({values.data(), dtype}, {numbers.data(), DType::kF64}, elements);
  std::transform(numbers.begin(), numbers.end(), products.begin(),
                 [factor](double number) { return number * factor; });
  ConvertNumbers({products.data(), DType::kF64}, {values.data(), dtype}, elements);
  ConvertNumbers({values.data(), dtype}, {products.data(), DType::kF64}, elements);
  // A number that is too large or too small does not come back.
  return std::equal(numbers.begin(), numbers.end(), products.begin(),
                    [factor](double number, double product) { return product / factor == number; });
}

}  // namespace

Shape WidenedShape(const HfParameter& parameter, int64_t rank) {
  if (absl::EndsWith(parameter.name, kLowRankDown)) return parameter.shape.With(0, rank);
  if (absl::EndsWith(parameter.name, kLowRankUp)) return parameter.shape.With(1, rank);
  return parameter.shape;
}

bool WidenRank(const WidenedRank& wanted, DType dtype, HfParameter& parameter,
               std::vector<char>& values) {
  const Shape shape = parameter.shape;
  parameter.shape = WidenedShape(parameter, wanted.rank);
  const size_t element = SizeOf(dtype), bytes = size_t(parameter.shape.elements()) * element;
  CHECK(bytes >= values.size()) << parameter.name;
  if (absl::EndsWith(parameter.name, kLowRankUp)) {
    if (wanted.factor != 1 && !Multiply(wanted.factor, dtype, values)) return false;
    const size_t row = size_t(shape[1]) * element, wide = size_t(wanted.rank) * element;
    std::vector<char> widened(bytes);
    for (size_t i = 0; i < size_t(shape[0]); ++i) {
      std::copy_n(values.data() + i * row, row, widened.data() + i * wide);
    }
    values = std::move(widened);
  }
  values.resize(bytes);
  return true;
}

}  // namespace trainyard
