// Checks that a manifest is consistent. manifest_json.cc reads and writes its text.

#include "train/checkpoint/manifest.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "train/checkpoint/pieces.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

constexpr size_t kMaxTensors = 1'000'000;
// Per tensor. Each rank may have a flat range of a matrix, which consists of at most three boxes:
// its two ends and its middle.
constexpr size_t kMaxBoxes = 3 * size_t{kMaxDevices};
constexpr size_t kMaxNameBytes = 512;
constexpr int64_t kMaxDim = int64_t{1} << 40;
constexpr int64_t kMaxElements = int64_t{1} << 50;

template <typename... Parts>
absl::Status Inconsistent(const StoredTensor& tensor, const Parts&... what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", tensor.name, " (", Name(tensor.kind), "): ", what...));
}

// Names are part of one-line texts, so they must not have spaces.
bool LegalName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isgraph(c); });
}

// "rank-0.bin": no name may lead out of the directory.
bool LegalFileName(absl::string_view name) {
  constexpr absl::string_view kPrefix = "rank-", kSuffix = ".bin";
  if (name.size() <= kPrefix.size() + kSuffix.size() || name.size() > 32) return false;
  if (name.substr(0, kPrefix.size()) != kPrefix) return false;
  if (name.substr(name.size() - kSuffix.size()) != kSuffix) return false;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  return std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

bool LegalSha256(const std::string& hex) {
  return hex.size() == 64 && std::all_of(hex.begin(), hex.end(), [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

absl::Status CheckShape(const StoredTensor& tensor) {
  int64_t elements = 1;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    const int64_t dim = tensor.shape[i];
    if (dim < 1 || dim > kMaxDim || elements > kMaxElements / dim) {
      return Inconsistent(tensor, "the shape ", ToString(tensor.shape), " is out of range");
    }
    elements *= dim;
  }
  return absl::OkStatus();
}

absl::Status CheckBox(const StoredTensor& tensor, const StoredBox& stored) {
  const Box& box = stored.box;
  if (box.offset.rank() != tensor.shape.rank() || box.extent.rank() != tensor.shape.rank()) {
    return Inconsistent(tensor, "box ", ToString(box), " has not the rank of ",
                        ToString(tensor.shape));
  }
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    if (box.offset[i] < 0 || box.extent[i] < 1 || box.offset[i] >= tensor.shape[i] ||
        box.extent[i] > tensor.shape[i] - box.offset[i]) {
      return Inconsistent(tensor, "box ", ToString(box), " does not lie in ",
                          ToString(tensor.shape));
    }
  }
  if (!LegalFileName(stored.file)) {
    return Inconsistent(tensor, "illegal file name \"", absl::CEscape(stored.file.substr(0, 64)),
                        "\"");
  }
  if (!LegalSha256(stored.sha256))
    return Inconsistent(tensor, "sha256 is not 64 hexadecimal digits");
  if (stored.piece.rank() == 0) return absl::OkStatus();
  bool fits = stored.piece.rank() == box.extent.rank();
  for (int i = 0; fits && i < box.extent.rank(); ++i) {
    fits = stored.piece[i] >= 1 && stored.piece[i] <= box.extent[i];
  }
  if (fits && PieceCounts(box.extent, stored.piece).elements() <= kMaxPieces) {
    return absl::OkStatus();
  }
  return Inconsistent(tensor, "pieces ", ToString(stored.piece), " do not divide box ",
                      ToString(box), " into at most ", kMaxPieces);
}

// Boxes tile a tensor if they are inside it, share no element, and have as many elements as the
// tensor.
absl::Status CheckTiling(const StoredTensor& tensor) {
  if (tensor.boxes.empty() || tensor.boxes.size() > kMaxBoxes) {
    return Inconsistent(tensor, "wanted 1 to ", kMaxBoxes, " boxes, found ", tensor.boxes.size());
  }
  std::vector<Box> boxes;
  for (const StoredBox& stored : tensor.boxes) {
    RETURN_IF_ERROR(CheckBox(tensor, stored));
    boxes.push_back(stored.box);
  }
  if (const auto pair = FindOverlap(boxes)) {
    return Inconsistent(tensor, "boxes ", ToString(pair->first), " and ", ToString(pair->second),
                        " overlap");
  }
  int64_t elements = 0;  // At most the tensor's, because no boxes overlap.
  for (const Box& box : boxes) elements += box.elements();
  if (elements != tensor.shape.elements()) {
    return Inconsistent(tensor, "boxes hold ", elements, " of ", tensor.shape.elements(),
                        " elements");
  }
  return absl::OkStatus();
}

struct FileRange {
  uint64_t begin;
  uint64_t end;
  const StoredTensor* tensor;
};

// Returns the size of a file. Its ranges must follow one another without a gap.
absl::StatusOr<uint64_t> FileSize(const std::string& file, std::vector<FileRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const FileRange& a, const FileRange& b) { return a.begin < b.begin; });
  uint64_t size = 0;
  for (const FileRange& range : ranges) {
    if (range.begin != size) {
      return Inconsistent(*range.tensor, "begins at byte ", range.begin, " of ", file, ", wanted ",
                          size);
    }
    size = range.end;
  }
  return size;
}

absl::Status CheckState(const RunState& state) {
  if (state.job_id.size() > 256 || !LegalName(state.job_id)) {
    return absl::InvalidArgumentError("job_id: wanted 1 to 256 characters without spaces");
  }
  if (state.epoch < 0 || state.step < 0 || state.data_position < 0 || state.sequence < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch ", state.epoch, ", step ", state.step, ", data_position ",
                     state.data_position, ", sequence ", state.sequence, ": wanted none below 0"));
  }
  if (state.base && (state.base->epoch < 0 || state.base->epoch > state.epoch)) {
    return absl::InvalidArgumentError(absl::StrCat("base: wanted one of an attempt up to epoch ",
                                                   state.epoch, ", found epoch ",
                                                   state.base->epoch));
  }
  if (state.adapter && !(state.adapter->rank > 0 && std::isfinite(state.adapter->scale()))) {
    return absl::InvalidArgumentError(absl::StrCat("adapter: wanted a rank above 0 and a number ",
                                                   "alpha, found rank ", state.adapter->rank,
                                                   ", alpha ", state.adapter->alpha));
  }
  if (state.validation && !std::isfinite(state.validation->loss)) {
    return absl::InvalidArgumentError("validation: wanted a finite loss");
  }
  if (state.base && !LegalSha256(state.base->sha256)) {
    return absl::InvalidArgumentError("base: sha256 is not 64 hexadecimal digits");
  }
  return absl::OkStatus();
}

}  // namespace

const char* Name(TensorKind kind) {
  switch (kind) {
    case TensorKind::kParameter:
      return "parameter";
    case TensorKind::kFirstMoment:
      return "m";
    case TensorKind::kSecondMoment:
      return "v";
  }
  return "?";
}

uint64_t Manifest::size_bytes() const {
  uint64_t total = 0;
  for (const auto& [file, size] : file_sizes) total += size;
  return total;
}

const StoredTensor* Manifest::Find(absl::string_view name, TensorKind kind) const {
  const auto it =
      std::lower_bound(tensors.begin(), tensors.end(), std::make_pair(name, kind),
                       [](const StoredTensor& tensor, const auto& key) {
                         return std::make_pair(absl::string_view(tensor.name), tensor.kind) < key;
                       });
  return it != tensors.end() && it->name == name && it->kind == kind ? &*it : nullptr;
}

absl::StatusOr<Manifest> MakeManifest(RunState state, std::vector<StoredTensor> tensors) {
  RETURN_IF_ERROR(CheckState(state));
  if (tensors.empty() || tensors.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted 1 to ", kMaxTensors, " tensors, found ", tensors.size()));
  }
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.name, a.kind) < std::tie(b.name, b.kind);
  });
  std::map<std::string, std::vector<FileRange>> files;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor& tensor = tensors[i];
    if (!LegalName(tensor.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("illegal tensor name \"", absl::CEscape(tensor.name.substr(0, 64)), "\""));
    }
    if (IsLowRank(tensor.name) && !state.adapter) {
      return Inconsistent(tensor, "is of an adapter, and no adapter is named");
    }
    if (i > 0 && tensors[i - 1].name == tensor.name && tensors[i - 1].kind == tensor.kind) {
      return Inconsistent(tensor, "listed twice");
    }
    RETURN_IF_ERROR(CheckShape(tensor));
    RETURN_IF_ERROR(CheckTiling(tensor));
    for (const StoredBox& stored : tensor.boxes) {
      const uint64_t bytes = uint64_t(stored.box.elements()) * SizeOf(tensor.dtype) +
                             PieceTableBytes(stored.box.extent, stored.piece);
      if (stored.file_offset > uint64_t{1} << 62) {
        return Inconsistent(tensor, "file offset ", stored.file_offset, " is out of range");
      }
      files[stored.file].push_back({stored.file_offset, stored.file_offset + bytes, &tensor});
    }
  }
  std::map<std::string, uint64_t> file_sizes;
  for (auto& [file, ranges] : files) {
    ASSIGN_OR_RETURN(file_sizes[file], FileSize(file, std::move(ranges)));
  }
  return Manifest{.state = std::move(state),
                  .tensors = std::move(tensors),
                  .file_sizes = std::move(file_sizes),
                  .sha256 = {}};
}

}  // namespace trainyard
