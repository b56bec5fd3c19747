#include "train/checkpoint/read_box.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crc32.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/checkpoint/pieces.h"

namespace trainyard {
namespace {

absl::Status Damaged(const InputFile& file, const StoredTensor& tensor, const Box& box) {
  return absl::DataLossError(absl::StrCat(file.path(), ": ", Describe(tensor), ", box ",
                                          ToString(box), ", does not match its checksum: damaged"));
}

uint64_t BytesOf(const StoredTensor& tensor, const Box& box) {
  return uint64_t(box.elements()) * SizeOf(tensor.dtype);
}

absl::Status ReadBoxFrom(const InputFile& file, const StoredTensor& tensor, const StoredBox& stored,
                         UseBytes use) {
  Sha256 hash;
  uint64_t left = BytesOf(tensor, stored.box);
  std::string chunk(std::min<uint64_t>(left, kChunkBytes), '\0');
  for (uint64_t at = stored.file_offset; left > 0;) {
    const size_t bytes = size_t(std::min<uint64_t>(left, chunk.size()));
    RETURN_IF_ERROR(file.ReadAt(at, chunk.data(), bytes));
    hash.Update(chunk.data(), bytes);
    use(chunk.data(), bytes);
    at += bytes;
    left -= bytes;
  }
  if (hash.HexDigest() == stored.sha256) return absl::OkStatus();
  return Damaged(file, tensor, stored.box);
}

// Copies the elements that both boxes share from the memory of one box to that of the other.
void CopyShared(const Box& from_box, const char* from, const Box& to_box, char* to,
                size_t element) {
  ForEachSharedRun(from_box, to_box, [&](int64_t source, int64_t target, int64_t count) {
    std::copy_n(from + size_t(source) * element, size_t(count) * element,
                to + size_t(target) * element);
    return absl::OkStatus();
  }).IgnoreError();
}

// The same directly from the file, without a check.
absl::Status ReadShared(const InputFile& file, const StoredBox& stored, const Box& box, char* data,
                        size_t element) {
  return ForEachSharedRun(stored.box, box, [&](int64_t from, int64_t to, int64_t count) {
    return file.ReadAt(stored.file_offset + uint64_t(from) * element, data + size_t(to) * element,
                       size_t(count) * element);
  });
}

// Reads a box that is divided into pieces.
class PieceReader {
 public:
  PieceReader(const InputFile& file, const StoredTensor& tensor, const StoredBox& stored)
      : file_(file),
        tensor_(tensor),
        stored_(stored),
        element_(SizeOf(tensor.dtype)),
        grid_(WholeBox(PieceCounts(stored.box.extent, stored.piece))) {}

  // Fills the part of `target` that the box has, one row of pieces after the other.
  absl::Status Fill(const Box& target, char* data) const {
    Box strip = PiecesOf(*Intersection(stored_.box, target));
    const int64_t begin = strip.offset[0], end = begin + strip.extent[0];
    strip.extent = strip.extent.With(0, 1);
    std::vector<char> bytes;
    for (int64_t row = begin; row < end; ++row) {
      strip.offset = strip.offset.With(0, row);
      const Box elements = ElementsOf(strip);
      bytes.resize(BytesOf(tensor_, elements));
      RETURN_IF_ERROR(ReadShared(file_, stored_, elements, bytes.data(), element_));
      RETURN_IF_ERROR(Check(strip, elements, bytes.data()));
      CopyShared(elements, bytes.data(), target, data, element_);
    }
    return absl::OkStatus();
  }

 private:
  // Returns the pieces that hold a part of the stored box, as a box of the grid of all pieces.
  Box PiecesOf(const Box& part) const {
    Box pieces = grid_;
    for (int i = 0; i < part.extent.rank(); ++i) {
      const int64_t size = stored_.piece[i], begin = part.offset[i] - stored_.box.offset[i];
      const int64_t first = begin / size, last = (begin + part.extent[i] - 1) / size;
      pieces.offset = pieces.offset.With(i, first);
      pieces.extent = pieces.extent.With(i, last - first + 1);
    }
    return pieces;
  }

  // The inverse: the elements of a box of pieces.
  Box ElementsOf(const Box& pieces) const {
    Box elements = stored_.box;
    for (int i = 0; i < elements.extent.rank(); ++i) {
      const int64_t size = stored_.piece[i], begin = pieces.offset[i] * size;
      const int64_t end = std::min(begin + pieces.extent[i] * size, stored_.box.extent[i]);
      elements.offset = elements.offset.With(i, stored_.box.offset[i] + begin);
      elements.extent = elements.extent.With(i, end - begin);
    }
    return elements;
  }

  absl::Status Check(const Box& strip, const Box& elements, const char* data) const {
    std::vector<uint32_t> wanted(size_t(strip.elements()));
    RETURN_IF_ERROR(ForEachSharedRun(grid_, strip, [&](int64_t from, int64_t to, int64_t count) {
      return file_.ReadAt(
          stored_.file_offset + BytesOf(tensor_, stored_.box) + uint64_t(from) * sizeof(uint32_t),
          &wanted[size_t(to)], size_t(count) * sizeof(uint32_t));
    }));
    return ForEachSharedRun(grid_, strip, [&](int64_t from, int64_t to, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const Box piece = ElementsOf(OnePiece(from + i));
        uint32_t sum = 0;
        ForEachSharedRun(elements, piece, [&](int64_t at, int64_t, int64_t run) {
          sum = Crc32(sum, data + size_t(at) * element_, size_t(run) * element_);
          return absl::OkStatus();
        }).IgnoreError();
        if (sum != wanted[size_t(to + i)]) return Damaged(file_, tensor_, piece);
      }
      return absl::OkStatus();
    });
  }

  // Piece `number` in C order, as a box of the grid.
  Box OnePiece(int64_t number) const {
    Box piece = grid_;
    for (int i = grid_.extent.rank() - 1; i >= 0; --i) {
      piece.offset = piece.offset.With(i, number % grid_.extent[i]);
      piece.extent = piece.extent.With(i, 1);
      number /= grid_.extent[i];
    }
    return piece;
  }

  const InputFile& file_;
  const StoredTensor& tensor_;
  const StoredBox& stored_;
  const size_t element_;
  const Box grid_;  // All pieces: each dim counts pieces.
};

}  // namespace

std::string Describe(const StoredTensor& tensor) {
  return absl::StrCat("tensor ", tensor.name, " (", Name(tensor.kind), ")");
}

absl::StatusOr<const InputFile*> DataFiles::Get(const std::string& name) {
  if (const auto it = files_.find(name); it != files_.end()) return &it->second;
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(absl::StrCat(directory_, "/", name), roots_));
  return &files_.emplace(name, std::move(file)).first->second;
}

absl::Status ReadBox(const StoredTensor& tensor, const StoredBox& stored, DataFiles& files,
                     UseBytes use) {
  ASSIGN_OR_RETURN(const InputFile* file, files.Get(stored.file));
  return ReadBoxFrom(*file, tensor, stored, use);
}

absl::Status VerifyBox(const StoredTensor& tensor, const StoredBox& stored, DataFiles& files) {
  if (stored.piece.rank() == 0) return ReadBox(tensor, stored, files, [](const char*, size_t) {});
  ASSIGN_OR_RETURN(const InputFile* file, files.Get(stored.file));
  PieceChecksums found(stored.box.extent, stored.piece, SizeOf(tensor.dtype));
  RETURN_IF_ERROR(ReadBoxFrom(*file, tensor, stored,
                              [&](const char* data, size_t bytes) { found.Update(data, bytes); }));
  std::vector<uint32_t> wanted(found.sums().size());
  RETURN_IF_ERROR(file->ReadAt(stored.file_offset + BytesOf(tensor, stored.box), wanted.data(),
                               wanted.size() * sizeof(uint32_t)));
  return wanted == found.sums() ? absl::OkStatus() : Damaged(*file, tensor, stored.box);
}

absl::Status FillBox(const StoredTensor& tensor, const Box& box, char* data, DataFiles& files) {
  const size_t element = SizeOf(tensor.dtype);
  for (const StoredBox& stored : tensor.boxes) {
    if (!Intersection(stored.box, box)) continue;
    ASSIGN_OR_RETURN(const InputFile* file, files.Get(stored.file));
    if (stored.box == box) {
      char* to = data;
      RETURN_IF_ERROR(ReadBoxFrom(*file, tensor, stored, [&](const char* bytes, size_t count) {
        to = std::copy_n(bytes, count, to);
      }));
    } else if (stored.piece.rank() > 0) {
      RETURN_IF_ERROR(PieceReader(*file, tensor, stored).Fill(box, data));
    } else {
      std::vector<char> whole;
      whole.reserve(BytesOf(tensor, stored.box));
      RETURN_IF_ERROR(ReadBoxFrom(*file, tensor, stored, [&](const char* bytes, size_t count) {
        whole.insert(whole.end(), bytes, bytes + count);
      }));
      CopyShared(stored.box, whole.data(), box, data, element);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> HashTensor(const StoredTensor& tensor, DataFiles& files) {
  if (tensor.boxes.size() == 1) return tensor.boxes[0].sha256;
  const size_t element = SizeOf(tensor.dtype);
  const Box whole = WholeBox(tensor.shape);
  Sha256 hash;
  const int64_t rows = tensor.shape[0];
  const size_t row_bytes = size_t(tensor.shape.elements() / rows) * element;
  const int64_t stretch = std::max<int64_t>(1, int64_t(kChunkBytes / row_bytes));
  std::string buffer;
  for (int64_t row = 0; row < rows; row += stretch) {
    const int64_t count = std::min(stretch, rows - row);
    buffer.resize(size_t(count) * row_bytes);
    const Box part{whole.offset.With(0, row), whole.extent.With(0, count)};
    for (const StoredBox& stored : tensor.boxes) {
      if (!Intersection(stored.box, part)) continue;
      ASSIGN_OR_RETURN(const InputFile* file, files.Get(stored.file));
      RETURN_IF_ERROR(ReadShared(*file, stored, part, buffer.data(), element));
    }
    hash.Update(buffer);
  }
  return hash.HexDigest();
}

}  // namespace trainyard
