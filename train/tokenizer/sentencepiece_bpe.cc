#include "train/tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "common/utf8.h"
#include "train/tokenizer/pipeline_tokenizer.h"

namespace trainyard {
namespace {

constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581.

// A field of a message in the wire format of protobuf.
struct WireField {
  uint64_t number = 0;
  uint64_t value = 0;            // Of a number; the bits of a float.
  absl::string_view bytes = {};  // Of a text or a message.
};

std::optional<uint64_t> TakeVarint(absl::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const uint8_t byte = uint8_t(bytes[0]);
    bytes.remove_prefix(1);
    value |= uint64_t(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Calls `use` for each field. Returns false if this is no message.
bool ForEachField(absl::string_view message, const std::function<void(const WireField&)>& use) {
  while (!message.empty()) {
    const auto key = TakeVarint(message);
    if (!key) return false;
    WireField field{.number = *key >> 3};
    const uint64_t type = *key & 7;
    std::optional<uint64_t> size = type == 5 ? 4 : 8;
    if (type == 0) {
      const auto value = TakeVarint(message);
      if (!value) return false;
      field.value = *value;
      size = 0;
    } else if (type == 2) {
      size = TakeVarint(message);
    } else if (type != 5 && type != 1) {
      return false;
    }
    if (!size || *size > message.size()) return false;
    field.bytes = message.substr(0, size_t(*size));
    message.remove_prefix(size_t(*size));
    if (type == 5) std::memcpy(&field.value, field.bytes.data(), 4);
    use(field);
  }
  return true;
}

// Numbers of sentencepiece_model.proto.
enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kUnused = 5, kByte = 6 };
constexpr uint64_t kModelTypeBpe = 2;

struct Piece {
  absl::string_view text = {};
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct SentencePieceFile {
  std::vector<Piece> pieces;
  uint64_t model_type = 1;
  bool byte_fallback = false, space_is_suffix = false;
  bool has_character_map = false, prefixes_space = true, removes_spaces = true, marks_spaces = true;
};

Piece ReadPiece(absl::string_view message, bool& good) {
  Piece piece;
  good &= ForEachField(message, [&](const WireField& field) {
    const uint32_t bits = uint32_t(field.value);
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) std::memcpy(&piece.score, &bits, sizeof(bits));
    if (field.number == 3) piece.type = PieceType(field.value);
  });
  return piece;
}

std::optional<SentencePieceFile> ReadFile(absl::string_view bytes) {
  SentencePieceFile file;
  bool good = true;
  const auto trainer = [&](const WireField& field) {
    if (field.number == 3) file.model_type = field.value;
    if (field.number == 24) file.space_is_suffix = field.value != 0;
    if (field.number == 35) file.byte_fallback = field.value != 0;
  };
  const auto normalizer = [&](const WireField& field) {
    if (field.number == 2) file.has_character_map = !field.bytes.empty();
    if (field.number == 3) file.prefixes_space = field.value != 0;
    if (field.number == 4) file.removes_spaces = field.value != 0;
    if (field.number == 5) file.marks_spaces = field.value != 0;
  };
  good &= ForEachField(bytes, [&](const WireField& field) {
    if (field.number == 1) file.pieces.push_back(ReadPiece(field.bytes, good));
    if (field.number == 2) good &= ForEachField(field.bytes, trainer);
    if (field.number == 3) good &= ForEachField(field.bytes, normalizer);
  });
  if (!good) return std::nullopt;
  return file;
}

// All pairs of pieces that are a piece together. The highest score has the rank 0, and pieces of
// one score have one rank.
MergeTable MergesOf(const std::vector<Piece>& pieces, const Vocabulary& words) {
  std::vector<float> scores;
  for (const Piece& piece : pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<float>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<std::pair<std::pair<int32_t, int32_t>, MergeTable::Merge>> merges;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].type != PieceType::kNormal) continue;
    const absl::string_view text = pieces[id].text;
    const auto rank =
        std::lower_bound(scores.begin(), scores.end(), pieces[id].score, std::greater<float>()) -
        scores.begin();
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = words.Find(text.substr(0, cut)), right = words.Find(text.substr(cut));
      if (!left || !right) continue;
      merges.push_back({{*left, *right}, {uint32_t(rank), int32_t(id)}});
    }
  }
  MergeTable table(merges.size());
  for (const auto& [pair, merge] : merges) table.Add(pair.first, pair.second, merge);
  return table;
}

// Whether each character of a piece is a piece: otherwise the library joins characters that it does
// not know.
bool HasAllCharacters(absl::string_view piece, const Vocabulary& words) {
  if (!IsUtf8(piece)) return false;
  for (size_t at = 0; at < piece.size(); at += Utf8Bytes(piece[at])) {
    if (!words.Find(piece.substr(at, Utf8Bytes(piece[at])))) return false;
  }
  return true;
}

bool IsPlain(const SentencePieceFile& file) {
  return file.model_type == kModelTypeBpe && !file.space_is_suffix && !file.has_character_map &&
         !file.removes_spaces && file.marks_spaces;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceBpe(absl::string_view bytes) {
  const std::optional<SentencePieceFile> file = ReadFile(bytes);
  if (!file || !IsPlain(*file)) return nullptr;
  PipelineParts parts;
  Vocabulary words;
  BpeOptions options{.byte_fallback = file->byte_fallback, .fuse_unk = true};
  for (size_t id = 0; id < file->pieces.size(); ++id) {
    const Piece& piece = file->pieces[id];
    RETURN_IF_ERROR(parts.tokens.AddSecond(piece.text, int64_t(id)));
    const bool is_word = piece.type == PieceType::kNormal || piece.type == PieceType::kByte;
    if (is_word) RETURN_IF_ERROR(words.Add(piece.text, int64_t(id)));
    if (piece.type == PieceType::kUnknown) options.unk = int32_t(id);
    if (piece.type == PieceType::kUnused) return nullptr;
    if (piece.type != PieceType::kUser) continue;
    parts.verbatim.push_back({.id = int32_t(id), .content = std::string(piece.text)});
  }
  for (const Piece& piece : file->pieces) {
    if (piece.type == PieceType::kNormal && !HasAllCharacters(piece.text, words)) return nullptr;
  }
  if (!options.unk) return nullptr;
  if (file->prefixes_space) parts.normalizer.Add(PrependStep{kSpaceMark});
  ASSIGN_OR_RETURN(Expression space, Expression::Literally(" "));
  parts.normalizer.Add(
      ReplaceStep{std::make_shared<const Expression>(std::move(space)), kSpaceMark});
  MergeTable merges = MergesOf(file->pieces, words);
  parts.bpe = std::make_unique<const Bpe>(std::move(words), std::move(merges), options);
  return PipelineTokenizer::Create(std::move(parts));
}

}  // namespace trainyard
