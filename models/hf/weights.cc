#include "models/hf/weights.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/half.h"
#include "common/json.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "models/hf/block_fp8.h"
#include "models/hf/finite.h"
#include "models/hf/mxfp4.h"
#include "models/model.h"

namespace trainyard {
namespace {

constexpr char kHead[] = "lm_head.weight";
// Tables of rotary angles, which early releases wrote, and which follow from the configuration.
constexpr char kRotaryTable[] = ".rotary_emb.inv_freq";
constexpr char kLayers[] = "model.layers.";
// Beside a tensor in block FP8: the scales of its blocks.
constexpr char kFp8Scales[] = "_scale_inv";
constexpr int64_t kMostParameters = 1'000'000;  // Kimi K2 has 70 thousand.
constexpr size_t kCompareBytes = 1 << 20;

std::string ToString(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status Refuse(const std::string& file, const std::string& tensor, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": tensor ", VisibleUtf8(CutUtf8(tensor, kShownBytes)), ": ", what));
}

absl::Status CheckTensor(const HfTensor& tensor, const std::string& name,
                         const std::vector<int64_t>& shape) {
  if (tensor.info.shape == shape) return absl::OkStatus();
  return Refuse(tensor.file->path(), name,
                absl::StrCat("wanted the shape ", ToString(shape), ", as config.json says, found ",
                             ToString(tensor.info.shape)));
}

absl::Status FindPlain(const HfTensor& tensor, HfWeight& weight) {
  const HfDType stored = tensor.info.dtype;
  switch (stored) {
    case HfDType::kF64:
      weight.dtype = DType::kF64;
      break;
    case HfDType::kF32:
    case HfDType::kF16:
      weight.dtype = DType::kF32;
      break;
    case HfDType::kBF16:
      weight.dtype = DType::kBF16;
      break;
    default:
      return Refuse(tensor.file->path(), weight.layout.tensor,
                    absl::StrCat("wanted F64, F32, BF16 or F16, found ", Name(stored)));
  }
  weight.stored = stored;
  weight.tensor = &tensor;
  return CheckTensor(tensor, weight.layout.tensor, weight.layout.shape);
}

// A matrix [out, in] in blocks of both dims.
absl::Status FindBlockFp8(const HfTensor& tensor, const HfTensor& scales, HfWeight& weight) {
  const HfLayout& layout = weight.layout;
  const HfParameter& first = layout.parameters.front();
  const bool one = layout.parameters.size() == 1 && !first.index && !first.transposed;
  if (!one || first.shape.rank() != 2) {
    return Refuse(tensor.file->path(), layout.tensor,
                  "wanted a matrix of one parameter for block FP8, found another tensor");
  }
  RETURN_IF_ERROR(CheckTensor(tensor, layout.tensor, layout.shape));
  std::vector<int64_t> blocks;
  for (const int64_t size : layout.shape) blocks.push_back((size + kFp8Block - 1) / kFp8Block);
  RETURN_IF_ERROR(CheckTensor(scales, layout.tensor + kFp8Scales, blocks));
  if (scales.info.dtype != HfDType::kF32 && scales.info.dtype != HfDType::kBF16) {
    return Refuse(scales.file->path(), layout.tensor + kFp8Scales,
                  absl::StrCat("wanted F32 or BF16, found ", Name(scales.info.dtype)));
  }
  weight.stored = HfDType::kBF16;
  weight.dtype = DType::kBF16;
  weight.tensor = &tensor;
  weight.scales = &scales;
  return absl::OkStatus();
}

// The matrices are [out, in], in blocks along `in`.
absl::Status FindMxfp4(const HfTensor& blocks, const HfTensor& scales, HfWeight& weight) {
  const HfParameter& first = weight.layout.parameters.front();
  const std::string& name = weight.layout.tensor;
  const int64_t in = first.shape[1];
  if (in % kMxfp4Block != 0) {
    return Refuse(blocks.file->path(), name,
                  absl::StrCat("wanted rows of a multiple of ", kMxfp4Block,
                               " numbers for MXFP4, found ", in));
  }
  std::vector<int64_t> shape = {weight.layout.slices(), first.shape[0] * first.parts,
                                in / kMxfp4Block};
  RETURN_IF_ERROR(CheckTensor(scales, name + "_scales", shape));
  shape.push_back(kMxfp4BlockBytes);
  RETURN_IF_ERROR(CheckTensor(blocks, name + "_blocks", shape));
  for (const HfTensor* tensor : {&blocks, &scales}) {
    if (tensor->info.dtype == HfDType::kU8) continue;
    return Refuse(tensor->file->path(), name,
                  absl::StrCat("wanted U8 for MXFP4, found ", Name(tensor->info.dtype)));
  }
  weight.stored = HfDType::kBF16;
  weight.dtype = DType::kBF16;
  weight.tensor = &blocks;
  weight.scales = &scales;
  return absl::OkStatus();
}

absl::StatusOr<bool> SameBytes(const HfTensor& a, const HfTensor& b) {
  if (a.info.dtype != b.info.dtype || a.info.shape != b.info.shape) return false;
  std::vector<char> of_a(kCompareBytes), of_b(kCompareBytes);
  for (uint64_t at = 0; at < a.info.bytes; at += kCompareBytes) {
    const size_t bytes = size_t(std::min<uint64_t>(kCompareBytes, a.info.bytes - at));
    RETURN_IF_ERROR(a.Read(at, of_a.data(), bytes));
    RETURN_IF_ERROR(b.Read(at, of_b.data(), bytes));
    if (std::memcmp(of_a.data(), of_b.data(), bytes) != 0) return false;
  }
  return true;
}

// How many layers the directory has after the model's last one.
int64_t FurtherLayers(const ModelDirectory& directory, const HfTable& table) {
  if (table.further_layers == nullptr) return 0;
  const auto count = directory.config().find(table.further_layers);
  int64_t layers = 0;
  if (count == directory.config().end()) return table.further_absent;
  return ReadInteger(*count, layers) ? layers : 0;
}

// Whether the tensor is of one of the `further` layers after the model's `layers`.
bool IsOfFurtherLayer(const HfTable& table, absl::string_view name, int64_t layers,
                      int64_t further) {
  if (table.further_tensors != nullptr) {
    return further > 0 && absl::StartsWith(name, table.further_tensors);
  }
  int64_t layer = 0;
  return absl::ConsumePrefix(&name, kLayers) &&
         absl::SimpleAtoi(name.substr(0, name.find('.')), &layer) && layer >= layers &&
         layer - layers < further;
}

// The tensor is not one of the model's.
absl::Status CheckOther(const HfTable& table, const std::string& name, const HfTensor& tensor,
                        const HfTensor* embedding) {
  if (absl::EndsWith(name, kRotaryTable)) return absl::OkStatus();
  for (const char* ignored : table.ignored_tensors) {
    if (absl::EndsWith(name, ignored)) return absl::OkStatus();
  }
  if (name == kHead && embedding != nullptr) {
    ASSIGN_OR_RETURN(const bool same, SameBytes(tensor, *embedding));
    if (same) return absl::OkStatus();
    return Refuse(tensor.file->path(), name,
                  absl::StrCat("wanted the values of ", table.embedding,
                               ", since tie_word_embeddings is true, found others"));
  }
  return Refuse(tensor.file->path(), name, "the model that config.json describes has no such one");
}

uint64_t SliceBegin(const HfTensor& tensor, const HfWeight& weight, const HfParameter& parameter) {
  return tensor.info.bytes / uint64_t(weight.layout.slices()) *
         uint64_t(parameter.index.value_or(0));
}

absl::Status ReadMxfp4(const HfWeight& weight, const HfParameter& parameter, bf16* out) {
  const uint64_t slices = uint64_t(weight.layout.slices());
  std::vector<uint8_t> blocks(size_t(weight.tensor->info.bytes / slices));
  std::vector<uint8_t> scales(size_t(weight.scales->info.bytes / slices));
  RETURN_IF_ERROR(weight.tensor->Read(SliceBegin(*weight.tensor, weight, parameter), blocks.data(),
                                      blocks.size()));
  RETURN_IF_ERROR(weight.scales->Read(SliceBegin(*weight.scales, weight, parameter), scales.data(),
                                      scales.size()));
  const size_t in = size_t(parameter.shape[1]), row_scales = in / kMxfp4Block;
  for (int64_t row = 0; row < parameter.shape[0]; ++row) {
    const size_t begin = size_t(row * parameter.parts + parameter.part) * row_scales;
    DequantizeMxfp4(
        std::span(blocks).subspan(begin * kMxfp4BlockBytes, row_scales * kMxfp4BlockBytes),
        std::span(scales).subspan(begin, row_scales), std::span(out + size_t(row) * in, in));
  }
  return absl::OkStatus();
}

// The numbers of a whole tensor of F32 or BF16.
absl::StatusOr<std::vector<float>> ReadFloats(const HfTensor& tensor) {
  std::vector<float> values(size_t(tensor.info.bytes) / SizeOf(tensor.info.dtype));
  if (tensor.info.dtype == HfDType::kF32) {
    RETURN_IF_ERROR(tensor.Read(0, values.data(), values.size() * sizeof(float)));
    return values;
  }
  std::vector<bf16> stored(values.size());
  RETURN_IF_ERROR(tensor.Read(0, stored.data(), stored.size() * sizeof(bf16)));
  std::copy(stored.begin(), stored.end(), values.begin());
  return values;
}

absl::Status ReadBlockFp8(const HfWeight& weight, const HfParameter& parameter, bf16* out) {
  ASSIGN_OR_RETURN(const std::vector<float> scales, ReadFloats(*weight.scales));
  std::vector<uint8_t> bytes(size_t(weight.tensor->info.bytes));
  RETURN_IF_ERROR(weight.tensor->Read(0, bytes.data(), bytes.size()));
  DequantizeBlockFp8(bytes, scales, parameter.shape[1], std::span(out, bytes.size()));
  return absl::OkStatus();
}

void Widen(const std::vector<uint16_t>& halves, void* out) {
  std::transform(halves.begin(), halves.end(), static_cast<float*>(out), HalfToFloat);
}

struct Elements {
  int64_t first, count;
};

// Reads elements of a parameter that the tensor has as it is.
absl::Status ReadPlainRows(const HfWeight& weight, const HfParameter& parameter,
                           const Elements& elements, void* out) {
  const size_t element = SizeOf(weight.stored), bytes = size_t(elements.count) * element;
  const uint64_t begin =
      SliceBegin(*weight.tensor, weight, parameter) + uint64_t(elements.first) * element;
  if (weight.stored != HfDType::kF16) return weight.tensor->Read(begin, out, bytes);
  std::vector<uint16_t> halves(size_t(elements.count));
  RETURN_IF_ERROR(weight.tensor->Read(begin, halves.data(), bytes));
  Widen(halves, out);
  return absl::OkStatus();
}

// Reads a parameter that the tensor has in another form.
absl::Status ReadWhole(const HfWeight& weight, const HfParameter& parameter, void* out) {
  const HfTensor& tensor = *weight.tensor;
  if (weight.scales != nullptr) {
    const bool fp8 = tensor.info.dtype == HfDType::kF8E4M3;
    return fp8 ? ReadBlockFp8(weight, parameter, static_cast<bf16*>(out))
               : ReadMxfp4(weight, parameter, static_cast<bf16*>(out));
  }
  const size_t element = SizeOf(weight.stored);
  std::vector<char> slice(size_t(weight.layout.slice_elements()) * element);
  RETURN_IF_ERROR(tensor.Read(SliceBegin(tensor, weight, parameter), slice.data(), slice.size()));
  if (weight.stored != HfDType::kF16) {
    TakeRows(parameter, element, slice.data(), out);
    return absl::OkStatus();
  }
  std::vector<uint16_t> halves(size_t(parameter.shape.elements()));
  TakeRows(parameter, element, slice.data(), halves.data());
  Widen(halves, out);
  return absl::OkStatus();
}

// Where an element of the parameter lies in the tensor.
std::vector<int64_t> IndexInTensor(const HfLayout& layout, const HfParameter& p, int64_t element) {
  const int64_t rows = p.shape[0] * p.parts, columns = p.shape.elements() / p.shape[0];
  const int64_t row = element / columns * p.parts + p.part, column = element % columns;
  int64_t flat = p.index.value_or(0) * layout.slice_elements() +
                 (p.transposed ? column * rows + row : row * columns + column);
  std::vector<int64_t> index(layout.shape.size());
  for (size_t dim = index.size(); dim-- > 0;) {
    index[dim] = flat % layout.shape[dim];
    flat /= layout.shape[dim];
  }
  return index;
}

// One number that is not finite makes the first loss NaN.
absl::Status CheckFinite(const HfWeight& weight, const HfParameter& parameter,
                         const Elements& elements, const void* values) {
  const int64_t found = FirstNotFinite(values, elements.count, weight.dtype);
  if (found == elements.count) return absl::OkStatus();
  const std::vector<int64_t> index =
      IndexInTensor(weight.layout, parameter, elements.first + found);
  return Refuse(weight.tensor->file->path(), weight.layout.tensor,
                absl::StrCat("wanted finite numbers, found NaN or infinity at ", ToString(index)));
}

// A few words in config.json can describe more parameters than there is memory to list them. No
// format has less than half a byte for a parameter.
absl::Status CheckSize(const ModelDirectory& directory, const ModelConfig& config) {
  double elements = 0, bytes = 0;
  int64_t parameters = 0;
  for (const ParameterStorage& storage : DeclareParameters(*CreateModel(config))) {
    elements += double(storage.shape.elements());
    for (const ParameterSpec& spec : storage.parameters) {
      parameters += spec.stacked ? spec.shape[0] : 1;
    }
  }
  if (parameters > kMostParameters) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory.path(), ": config.json describes ", parameters,
                     " matrices and vectors; wanted at most ", kMostParameters));
  }
  for (const auto& [name, tensor] : directory.tensors()) bytes += double(tensor.info.bytes);
  if (elements <= 2 * bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(directory.path(), ": config.json describes ",
                                                 elements, " parameters, the tensors have ", bytes,
                                                 " bytes"));
}

// Finds the tensor in whatever format it is, and adds the names that it takes to `used`.
absl::Status FindWeight(const ModelDirectory& directory, const HfTable& table, HfWeight& weight,
                        std::set<std::string>& used) {
  const std::string& name = weight.layout.tensor;
  const auto find = [&](absl::string_view suffix) -> const HfTensor* {
    const std::string whole = absl::StrCat(name, suffix);
    for (absl::string_view known :
         {absl::string_view(whole), absl::StripPrefix(whole, table.optional_prefix)}) {
      const HfTensor* const tensor = directory.Find(known);
      if (tensor == nullptr) continue;
      used.emplace(known);
      return tensor;
    }
    return nullptr;
  };
  if (const HfTensor* const tensor = find("")) {
    if (tensor->info.dtype != HfDType::kF8E4M3) return FindPlain(*tensor, weight);
    if (const HfTensor* const scales = find(kFp8Scales)) {
      return FindBlockFp8(*tensor, *scales, weight);
    }
    return Refuse(directory.path(), name + kFp8Scales, "missing beside a tensor of F8_E4M3");
  }
  if (weight.layout.parameters.front().mxfp4) {
    const HfTensor *const blocks = find("_blocks"), *const scales = find("_scales");
    if (blocks != nullptr && scales != nullptr) return FindMxfp4(*blocks, *scales, weight);
  }
  return Refuse(directory.path(), name, "missing, and config.json describes a model with it");
}

}  // namespace

absl::StatusOr<HfWeights> HfWeights::Find(const ModelDirectory& directory,
                                          const ModelConfig& config, const HfTable& table) {
  RETURN_IF_ERROR(CheckSize(directory, config));
  HfWeights found;
  std::set<std::string> used;
  const HfTensor* embedding = nullptr;
  const int64_t layers = FactsOf(config).layers, further = FurtherLayers(directory, table);
  for (HfLayout& layout : HfLayoutsOf(config, table)) {
    HfWeight& weight = found.weights_.emplace_back();
    weight.layout = std::move(layout);
    RETURN_IF_ERROR(FindWeight(directory, table, weight, used));
    if (weight.layout.tensor == table.embedding) embedding = weight.tensor;
  }
  for (const auto& [name, tensor] : directory.tensors()) {
    if (used.contains(name) || IsOfFurtherLayer(table, name, layers, further)) continue;
    RETURN_IF_ERROR(CheckOther(table, name, tensor, embedding));
  }
  return found;
}

absl::Status HfWeights::Read(const HfWeight& weight, const HfParameter& parameter, void* out) {
  return ReadRows(weight, parameter, 0, parameter.shape[0], out);
}

absl::Status HfWeights::ReadRows(const HfWeight& weight, const HfParameter& parameter,
                                 int64_t first, int64_t rows, void* out) {
  const int64_t columns = parameter.shape.elements() / parameter.shape[0];
  const Elements elements{first * columns, rows * columns};
  const bool plain = weight.scales == nullptr && parameter.parts == 1 && !parameter.transposed;
  if (plain) {
    RETURN_IF_ERROR(ReadPlainRows(weight, parameter, elements, out));
  } else if (rows == parameter.shape[0]) {
    RETURN_IF_ERROR(ReadWhole(weight, parameter, out));
  } else {
    const size_t row_bytes = size_t(columns) * SizeOf(weight.dtype);
    std::vector<char> all(size_t(parameter.shape[0]) * row_bytes);
    RETURN_IF_ERROR(ReadWhole(weight, parameter, all.data()));
    std::memcpy(out, all.data() + size_t(first) * row_bytes, size_t(rows) * row_bytes);
  }
  return CheckFinite(weight, parameter, elements, out);
}

}  // namespace trainyard
