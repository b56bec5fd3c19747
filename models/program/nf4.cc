#include "models/program/nf4.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "kernels/device/nf4.h"

namespace trainyard {
namespace {

constexpr std::array<float, 15> kMiddles = Nf4Middles(kNf4Values);
constexpr std::array<float, 256> kMap = Nf4Map();
constexpr std::array<float, 255> kMapMiddles = Nf4Middles(kMap);

float GreatestOf(std::span<const float> numbers) {
  float greatest = 0;
  for (const float x : numbers) greatest = std::max(greatest, std::abs(x));
  return greatest;
}

// What numbers of at most `greatest` are multiplied by, so that they are in [-1, 1].
float FactorOf(float greatest) {
  constexpr float kLeast = 1e-38f;  // So that the factor is finite.
  return 1 / std::max(greatest, kLeast);
}

// How many of the middles are less than x, without branches.
int CodeOf(float x) {
  int code = 0;
  for (const int step : {8, 4, 2, 1}) code += x > kMiddles[size_t(code + step - 1)] ? step : 0;
  return code;
}

// The codes of a block, two a byte.
void QuantizeBlock(std::span<const float> numbers, float greatest, uint8_t* codes) {
  const float factor = FactorOf(greatest);
  for (size_t i = 0; i < size_t(kNf4Block / kNf4PerByte); ++i) {
    codes[i] = uint8_t(CodeOf(numbers[2 * i] * factor) << 4 | CodeOf(numbers[2 * i + 1] * factor));
  }
}

// The init of parts that no base fills: random codes are numbers of a normal distribution, whose
// root mean square is that of the 16 values times the scale.
Init InitOfGroups(const Init& weight) {
  double squares = 0;
  for (const float value : kNf4Values) squares += double(value) * double(value) / 16;
  return Init::Constant(weight.scale / std::sqrt(squares));
}

}  // namespace

int64_t Nf4GroupsOf(int64_t numbers) { return (numbers / kNf4Block + kNf4Group - 1) / kNf4Group; }

Nf4Parts PartsInNf4(const ParameterSpec& weight) {
  CHECK(weight.shape.rank() == (weight.stacked ? 3 : 2) && weight.shape.back() % kNf4Block == 0 &&
        weight.padding == 0)
      << weight.name << ' ' << weight.shape << " in NF4";
  const auto part = [&](const char* ending, const Shape& shape, const Init& init,
                        const PackedPart& packed) {
    return ParameterSpec{.name = weight.name + ending,
                         .shape = shape,
                         .init = init,
                         .decay = weight.decay,
                         .stacked = weight.stacked,
                         .packed = packed};
  };
  // The shape of a part, of a tensor or of all stacked ones.
  const auto of_all = [&](std::vector<int64_t> dims) {
    if (weight.stacked) dims.insert(dims.begin(), weight.shape[0]);
    return Shape(std::span<const int64_t>(dims));
  };
  const int last = weight.shape.rank() - 1;
  const int64_t out = weight.shape[last - 1], in = weight.shape[last];
  Nf4Parts parts = {.codes = part(kNf4Codes, of_all({out, in / kNf4PerByte}), Init::Bytes(),
                                  {.dtype = DType::kU8, .numbers = kNf4PerByte}),
                    .scales = part(kNf4Scales, of_all({out, in / kNf4Block}), Init::Bytes(),
                                   {.dtype = DType::kU8}),
                    .groups = part(kNf4Groups, of_all({Nf4GroupsOf(out * in) + 1}),
                                   InitOfGroups(weight.init), {.dtype = DType::kF32})};
  parts.codes.shard = parts.scales.shard = weight.shard;
  if (weight.stacked) parts.groups.shard = weight.shard;
  return parts;
}

absl::string_view WeightInNf4(absl::string_view parameter) {
  for (const char* ending : {kNf4Codes, kNf4Scales, kNf4Groups}) {
    if (absl::ConsumeSuffix(&parameter, ending)) return parameter;
  }
  return "";
}

absl::StatusOr<Nf4Tensor> QuantizeNf4(std::span<const float> numbers) {
  CHECK(!numbers.empty() && numbers.size() % kNf4Block == 0) << numbers.size() << " numbers";
  const auto bad =
      std::find_if_not(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
  if (bad != numbers.end()) {
    return absl::InvalidArgumentError(absl::StrCat("wanted finite numbers for NF4, found ", *bad,
                                                   " as element ", bad - numbers.begin()));
  }
  const size_t blocks = numbers.size() / kNf4Block;
  Nf4Tensor tensor;
  tensor.codes.resize(numbers.size() / kNf4PerByte);
  std::vector<float> scales(blocks);
  double sum = 0;
  for (size_t block = 0; block < blocks; ++block) {
    const auto own = numbers.subspan(block * kNf4Block, kNf4Block);
    scales[block] = GreatestOf(own);
    sum += double(scales[block]);
    QuantizeBlock(own, scales[block], &tensor.codes[block * kNf4Block / kNf4PerByte]);
  }
  const float mean = float(sum / double(blocks));
  for (float& scale : scales) scale -= mean;
  for (size_t first = 0; first < blocks; first += kNf4Group) {
    const auto group =
        std::span(scales).subspan(first, std::min(size_t(kNf4Group), blocks - first));
    tensor.groups.push_back(GreatestOf(group));
    const float factor = FactorOf(tensor.groups.back());
    for (const float scale : group) {
      const auto place = std::lower_bound(kMapMiddles.begin(), kMapMiddles.end(), scale * factor);
      tensor.scales.push_back(uint8_t(place - kMapMiddles.begin()));
    }
  }
  tensor.groups.push_back(mean);
  return tensor;
}

void DequantizeNf4(const Nf4Rows& rows, std::span<float> numbers) {
  CHECK(numbers.size() == rows.scales.size() * kNf4Block &&
        numbers.size() == rows.codes.size() * kNf4PerByte)
      << numbers.size() << " numbers";
  for (size_t block = 0; block < rows.scales.size(); ++block) {
    const size_t group = (size_t(rows.first_block) + block) / kNf4Group;
    const float scale = Nf4Scale(kMap[rows.scales[block]], rows.groups[group], rows.groups.back());
    for (size_t i = 0; i < size_t(kNf4Block); ++i) {
      const size_t at = block * kNf4Block + i;
      const int code = rows.codes[at / 2] >> (at % 2 == 0 ? 4 : 0) & 15;
      numbers[at] = kNf4Values[size_t(code)] * scale;
    }
  }
}

}  // namespace trainyard
