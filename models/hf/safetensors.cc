#include "models/hf/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/json.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace trainyard {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold memory as it is");

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // The limit of the public implementation.
constexpr size_t kMaxDims = 32;
constexpr char kMetadata[] = "__metadata__";

struct Type {
  HfDType dtype;
  const char* name;
  size_t bytes;
};
constexpr Type kTypes[] = {{HfDType::kBool, "BOOL", 1},      {HfDType::kU8, "U8", 1},
                           {HfDType::kI8, "I8", 1},          {HfDType::kF8E4M3, "F8_E4M3", 1},
                           {HfDType::kF8E5M2, "F8_E5M2", 1}, {HfDType::kF8E8M0, "F8_E8M0", 1},
                           {HfDType::kI16, "I16", 2},        {HfDType::kU16, "U16", 2},
                           {HfDType::kF16, "F16", 2},        {HfDType::kBF16, "BF16", 2},
                           {HfDType::kI32, "I32", 4},        {HfDType::kU32, "U32", 4},
                           {HfDType::kF32, "F32", 4},        {HfDType::kI64, "I64", 8},
                           {HfDType::kU64, "U64", 8},        {HfDType::kF64, "F64", 8}};

const Type& TypeOf(HfDType dtype) {
  for (const Type& type : kTypes) {
    if (type.dtype == dtype) return type;
  }
  CHECK(false) << "no such dtype: " << int(dtype);
  std::abort();
}

// The text of a file, for a message.
absl::Status Damaged(const std::string& name, absl::string_view wanted, absl::string_view found) {
  return absl::DataLossError(
      absl::StrCat("tensor ", Shown(name), ": wanted ", wanted, ", found ", found));
}

// Returns nullopt if the number is larger than int64_t can hold.
std::optional<uint64_t> BytesOf(size_t element, const std::vector<int64_t>& shape) {
  int64_t bytes = int64_t(element);
  for (const int64_t size : shape) {
    // A size of 0 must not hide an overflow of the other sizes.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return std::count(shape.begin(), shape.end(), 0) > 0 ? 0 : uint64_t(bytes);
}

// Reads a list of whole numbers from 0.
std::optional<std::vector<int64_t>> ReadSizes(const Json& json, size_t most) {
  if (!json.is_array() || json.size() > most) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const Json& element : json) {
    if (!ReadInteger(element, sizes.emplace_back()) || sizes.back() < 0) return std::nullopt;
  }
  return sizes;
}

absl::Status CheckMetadata(const Json& json) {
  bool texts = json.is_object();
  for (auto it = json.begin(); texts && it != json.end(); ++it) texts = it->is_string();
  if (texts) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("wanted an object of texts as ", kMetadata, ", found something else"));
}

absl::StatusOr<SafetensorsTensor> ReadTensor(const std::string& name, const Json& json) {
  const bool keys = json.is_object() && json.size() == 3 && json.contains("dtype") &&
                    json.contains("shape") && json.contains("data_offsets");
  if (!keys) {
    return Damaged(name, "the keys dtype, shape and data_offsets", "others");
  }
  SafetensorsTensor tensor;
  const std::string dtype = json["dtype"].is_string() ? json["dtype"].get<std::string>() : "";
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const Type& known) { return dtype == known.name; });
  if (type == std::end(kTypes)) {
    const auto known = [](std::string* out, const Type& t) { absl::StrAppend(out, t.name); };
    return Damaged(name, absl::StrCat("one of the dtypes ", absl::StrJoin(kTypes, ", ", known)),
                   Shown(dtype));
  }
  tensor.dtype = type->dtype;
  std::optional<std::vector<int64_t>> shape = ReadSizes(json["shape"], kMaxDims);
  const std::optional<uint64_t> bytes = shape ? BytesOf(type->bytes, *shape) : std::nullopt;
  if (!bytes) {
    return Damaged(name, absl::StrCat("a shape of at most ", kMaxDims, " dims and 2^63 - 1 bytes"),
                   "another");
  }
  tensor.shape = *std::move(shape);
  const std::optional<std::vector<int64_t>> offsets = ReadSizes(json["data_offsets"], 2);
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return Damaged(name, "data_offsets [begin, end] with begin <= end", "others");
  }
  tensor.begin = uint64_t((*offsets)[0]);
  tensor.bytes = uint64_t((*offsets)[1]) - tensor.begin;
  if (tensor.bytes != *bytes) {
    return Damaged(name, absl::StrCat(*bytes, " bytes, as dtype and shape say"),
                   absl::StrCat("data_offsets of ", tensor.bytes));
  }
  return tensor;
}

// The tensors must follow each other without gap or overlap, up to the end of the file.
absl::Status CheckTiling(const SafetensorsTensors& tensors, uint64_t data_bytes) {
  using Entry = const SafetensorsTensors::value_type*;
  std::vector<Entry> in_order;
  for (const auto& entry : tensors) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](Entry a, Entry b) {
    return std::tie(a->second.begin, a->second.bytes) < std::tie(b->second.begin, b->second.bytes);
  });
  uint64_t end = 0;
  for (const Entry entry : in_order) {
    const SafetensorsTensor& tensor = entry->second;
    if (tensor.begin != end) {
      return Damaged(entry->first, absl::StrCat("data_offsets that begin at ", end),
                     absl::StrCat(tensor.begin, ": tensors overlap or leave a gap"));
    }
    end += tensor.bytes;
    if (end > data_bytes) {
      return Damaged(entry->first,
                     absl::StrCat("data_offsets up to ", data_bytes, ", where the file ends"),
                     absl::StrCat(end, ": truncated?"));
    }
  }
  if (end == data_bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("wanted ", end, " bytes of tensors, found ", data_bytes));
}

}  // namespace

const char* Name(HfDType dtype) { return TypeOf(dtype).name; }
size_t SizeOf(HfDType dtype) { return TypeOf(dtype).bytes; }

absl::StatusOr<SafetensorsTensors> ParseSafetensorsHeader(absl::string_view text,
                                                          uint64_t data_bytes) {
  if (text.empty() || text[0] != '{') {
    return absl::DataLossError("wanted a JSON object as the header, found another text");
  }
  const absl::StatusOr<Json> parsed = ParseUniqueJson(text);
  if (!parsed.ok()) {
    return absl::DataLossError(absl::StrCat("the header: ", parsed.status().message()));
  }
  const Json& json = *parsed;
  SafetensorsTensors tensors;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      RETURN_IF_ERROR(CheckMetadata(value));
      continue;
    }
    ASSIGN_OR_RETURN(tensors[name], ReadTensor(name, value));
  }
  RETURN_IF_ERROR(CheckTiling(tensors, data_bytes));
  return tensors;
}

uint64_t SafetensorsEntry::bytes() const {
  const std::optional<uint64_t> bytes = BytesOf(SizeOf(dtype), shape);
  CHECK(bytes.has_value()) << name;
  return *bytes;
}

std::string SafetensorsHeader(const std::vector<SafetensorsEntry>& entries) {
  nlohmann::ordered_json json = {{kMetadata, {{"format", "pt"}}}};
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    const uint64_t begin = std::exchange(end, end + entry.bytes());
    json[entry.name] = {
        {"dtype", Name(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {begin, end}}};
  }
  CHECK(json.size() == entries.size() + 1) << "two tensors have one name";
  std::string text = JsonText(json);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = std::bit_cast<std::array<char, 8>>(uint64_t{text.size()});
  return std::string(length.begin(), length.end()) + text;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path, const Roots& roots) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path, roots));
  const auto damaged = [&](const auto&... what) {
    return absl::DataLossError(absl::StrCat(file.path(), ": ", what...));
  };
  uint64_t length = 0;
  if (file.size() < sizeof(length)) return damaged("is too short for a safetensors file");
  RETURN_IF_ERROR(file.ReadAt(0, &length, sizeof(length)));
  const uint64_t left = file.size() - sizeof(length);
  if (length > kMaxHeaderBytes || length > left) {
    return damaged("wanted a header of at most ", std::min(left, kMaxHeaderBytes),
                   " bytes, found one of ", length,
                   ": truncated, or no safetensors file (a Git LFS pointer?)");
  }
  std::string text(size_t(length), '\0');
  RETURN_IF_ERROR(file.ReadAt(sizeof(length), text.data(), text.size()));
  absl::StatusOr<SafetensorsTensors> tensors = ParseSafetensorsHeader(text, left - length);
  if (!tensors.ok()) return damaged(tensors.status().message());
  return SafetensorsFile(std::move(file), *std::move(tensors), sizeof(length) + length);
}

absl::Status SafetensorsFile::Read(const SafetensorsTensor& tensor, uint64_t offset, void* out,
                                   size_t bytes) const {
  CHECK(offset <= tensor.bytes && bytes <= tensor.bytes - offset)
      << bytes << " bytes from " << offset << " of " << tensor.bytes;
  return file_.ReadAt(data_at_ + tensor.begin + offset, out, bytes);
}

}  // namespace trainyard
