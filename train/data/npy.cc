#include "train/data/npy.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/half.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr char kMagic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
constexpr uint64_t kMaxHeaderBytes = 10'000;  // The limit of numpy.load.
constexpr size_t kMaxDims = 32;               // The limit of NumPy 1.

// NumPy writes '|' in front of a type that has no byte order.
constexpr NpyType kTypes[] = {
    {"<f4", 4, true},  {"<f2", 2, true},  {"|u1", 1, false}, {"|i1", 1, false}, {"<u2", 2, false},
    {"<i2", 2, false}, {"<u4", 4, false}, {"<i4", 4, false}, {"<u8", 8, false}, {"<i8", 8, false}};

// Returns the first bytes of `text` for a message. The bytes come from a file and need not be
// UTF-8.
std::string Shown(absl::string_view text) {
  constexpr size_t kMost = 40;
  return absl::StrCat("\"", absl::CEscape(text.substr(0, kMost)), "\"");
}

absl::StatusOr<NpyType> TypeOf(const std::string& descr) {
  for (const NpyType& type : kTypes) {
    if (descr == type.descr) return type;
  }
  const auto name = [](std::string* out, const NpyType& type) { absl::StrAppend(out, type.descr); };
  const char* what = "";
  if (descr.find('O') != descr.npos) what = ", which are pickled objects";
  if (!descr.empty() && descr[0] == '>') what = ", which is big-endian";
  if (descr == "<f8") what = "; save a.astype(numpy.float32)";
  return absl::InvalidArgumentError(absl::StrCat("wanted elements of one of the types ",
                                                 absl::StrJoin(kTypes, ", ", name), ", found ",
                                                 Shown(descr), what));
}

// Reads the literal from the front to the end.
class Scanner {
 public:
  explicit Scanner(absl::string_view text) : left_(text) {}

  // Returns whether `token` comes next, after spaces. If so, the scanner moves behind the token.
  bool Take(absl::string_view token) {
    SkipSpaces();
    if (left_.substr(0, token.size()) != token) return false;
    left_.remove_prefix(token.size());
    return true;
  }
  bool AtEnd() {
    SkipSpaces();
    return left_.empty();
  }

  // Takes a quoted text without escapes.
  std::optional<std::string> Text() {
    const char* quote = Take("'") ? "'" : Take("\"") ? "\"" : nullptr;
    if (quote == nullptr) return std::nullopt;
    const size_t end = left_.find(*quote);
    if (end == left_.npos) return std::nullopt;
    std::string text(left_.substr(0, end));
    left_.remove_prefix(end + 1);
    if (text.find('\\') != text.npos) return std::nullopt;
    return text;
  }

  std::optional<int64_t> Size() {
    SkipSpaces();
    const size_t digits = std::min(left_.find_first_not_of("0123456789"), left_.size());
    int64_t value = 0;
    if (!absl::SimpleAtoi(left_.substr(0, digits), &value)) return std::nullopt;
    left_.remove_prefix(digits);
    return value;
  }

  // Takes a tuple of sizes: (), (2,), (2, 3) or (2, 3,).
  std::optional<std::vector<int64_t>> Tuple() {
    std::vector<int64_t> sizes;
    if (!Take("(")) return std::nullopt;
    bool comma = true;
    while (!Take(")")) {
      const std::optional<int64_t> size = comma ? Size() : std::nullopt;
      if (!size) return std::nullopt;
      sizes.push_back(*size);
      comma = Take(",");
    }
    // In Python, (2) is a number and not a tuple.
    if (sizes.size() == 1 && !comma) return std::nullopt;
    return sizes;
  }

 private:
  void SkipSpaces() {
    while (!left_.empty() && (left_[0] == ' ' || left_[0] == '\n')) left_.remove_prefix(1);
  }

  absl::string_view left_;
};

absl::Status BadLiteral(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "wanted a header with 'descr', 'fortran_order' and 'shape', once each, found one with ",
      what));
}

// The values of the keys that were read so far.
struct Literal {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

absl::Status ReadEntry(Scanner& scanner, Literal& out) {
  const std::optional<std::string> key = scanner.Text();
  if (!key || !scanner.Take(":")) return BadLiteral("something else where a key must be");
  if (*key == "descr" && !out.descr) {
    out.descr = scanner.Text();
    if (!out.descr) return BadLiteral("a 'descr' that is no single type");
  } else if (*key == "fortran_order" && !out.fortran_order) {
    if (scanner.Take("False")) out.fortran_order = false;
    if (!out.fortran_order && scanner.Take("True")) out.fortran_order = true;
    if (!out.fortran_order) return BadLiteral("a 'fortran_order' that is neither True nor False");
  } else if (*key == "shape" && !out.shape) {
    out.shape = scanner.Tuple();
    if (!out.shape) return BadLiteral("a 'shape' that is no tuple of sizes");
  } else {
    return BadLiteral(absl::StrCat("a second or unknown key ", Shown(*key)));
  }
  return absl::OkStatus();
}

// Returns the bytes of all elements, or nullopt if the number is larger than int64_t can hold.
std::optional<int64_t> BytesOf(const NpyHeader& header) {
  int64_t bytes = int64_t(header.type.bytes);
  for (const int64_t size : header.shape) {
    // A size of 0 must not hide an overflow of the other sizes.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return std::count(header.shape.begin(), header.shape.end(), 0) > 0 ? 0 : bytes;
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view literal) {
  Scanner scanner(literal);
  Literal read;
  if (!scanner.Take("{")) return BadLiteral("something else where { must be");
  bool comma = true;
  while (!scanner.Take("}")) {
    if (!comma) return BadLiteral("no comma between its entries");
    RETURN_IF_ERROR(ReadEntry(scanner, read));
    comma = scanner.Take(",");
  }
  if (!scanner.AtEnd()) return BadLiteral("something behind the last }");
  if (!read.descr || !read.fortran_order || !read.shape) return BadLiteral("one of them missing");
  if (*read.fortran_order) {
    return absl::InvalidArgumentError(
        "wanted elements in C order, found Fortran order; save numpy.ascontiguousarray(a)");
  }
  NpyHeader header;
  ASSIGN_OR_RETURN(header.type, TypeOf(*read.descr));
  header.shape = *std::move(read.shape);
  if (header.shape.size() > kMaxDims || !BytesOf(header)) {
    return absl::InvalidArgumentError(absl::StrCat("wanted a shape of at most ", kMaxDims,
                                                   " dims and 2^63 - 1 bytes, found a larger one"));
  }
  return header;
}

absl::StatusOr<NpyArray> NpyArray::Open(const std::string& path, const Roots& roots) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path, roots));
  const auto damaged = [&](const auto&... what) {
    return absl::DataLossError(absl::StrCat(file.path(), ": ", what...));
  };
  unsigned char start[12] = {};
  const size_t most = size_t(std::min<uint64_t>(sizeof(start), file.size()));
  RETURN_IF_ERROR(file.ReadAt(0, start, most));
  if (most < 10 || std::memcmp(start, kMagic, sizeof(kMagic)) != 0) {
    return damaged("does not begin as an .npy file");
  }
  const int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0) {
    return damaged("wanted version 1.0, 2.0 or 3.0 of the .npy format, found ", major, ".", minor);
  }
  const uint64_t header_at = major == 1 ? 10 : 12;
  uint64_t header_bytes = start[8] | start[9] << 8;
  if (major > 1) header_bytes |= uint64_t{start[10]} << 16 | uint64_t{start[11]} << 24;
  if (header_bytes > kMaxHeaderBytes) {
    return damaged("wanted a header of at most ", kMaxHeaderBytes, " bytes, found ", header_bytes);
  }
  const uint64_t data_at = header_at + header_bytes;
  if (file.size() < data_at) {
    return damaged("wanted a header up to byte ", data_at, ", found ", file.size(),
                   " bytes: truncated?");
  }
  std::string literal(size_t(header_bytes), '\0');
  RETURN_IF_ERROR(file.ReadAt(header_at, literal.data(), literal.size()));
  absl::StatusOr<NpyHeader> header = ParseNpyHeader(literal);
  if (!header.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", header.status().message()));
  }
  const uint64_t wanted = uint64_t(*BytesOf(*header)), found = file.size() - data_at;
  if (wanted != found) {
    return damaged("wanted ", wanted, " bytes of elements, as the header says, found ", found,
                   found < wanted ? ": truncated?" : "");
  }
  return NpyArray(std::move(file), *std::move(header), data_at);
}

template <typename Stored, typename Out, typename Convert>
absl::Status NpyArray::ReadAs(uint64_t first, std::span<Out> out, const Convert& convert) const {
  CHECK(sizeof(Stored) == type().bytes) << type().descr;
  std::vector<Stored> stored(out.size());
  RETURN_IF_ERROR(file_.ReadAt(data_at_ + first * sizeof(Stored), stored.data(),
                               stored.size() * sizeof(Stored)));
  std::transform(stored.begin(), stored.end(), out.begin(), convert);
  return absl::OkStatus();
}

absl::Status NpyArray::Read(uint64_t first, std::span<float> out) const {
  CHECK(type().real) << type().descr;
  if (type().bytes == 2) return ReadAs<uint16_t>(first, out, HalfToFloat);
  return ReadAs<float>(first, out, [](float value) { return value; });
}

absl::Status NpyArray::Read(uint64_t first, std::span<int64_t> out) const {
  CHECK(!type().real) << type().descr;
  const auto plain = [](auto value) { return int64_t(value); };
  const bool is_signed = type().descr[1] == 'i';
  switch (type().bytes) {
    case 1:
      return is_signed ? ReadAs<int8_t>(first, out, plain) : ReadAs<uint8_t>(first, out, plain);
    case 2:
      return is_signed ? ReadAs<int16_t>(first, out, plain) : ReadAs<uint16_t>(first, out, plain);
    case 4:
      return is_signed ? ReadAs<int32_t>(first, out, plain) : ReadAs<uint32_t>(first, out, plain);
    default:
      return is_signed ? ReadAs<int64_t>(first, out, plain)
                       : ReadAs<uint64_t>(first, out, [](uint64_t value) {
                           return int64_t(std::min<uint64_t>(value, INT64_MAX));
                         });
  }
}

}  // namespace trainyard
