// The text of manifest.json. The first line has the SHA-256 of everything after that line, so that
// damage is found before any value is used. The values are then checked like any other input.

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/json_fields.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "models/arch/config_json.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/paths.h"

namespace trainyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kFirstLine = "{\"manifest_sha256\": \"";
constexpr absl::string_view kFirstLineEnd = "\",\n";
constexpr size_t kHexBytes = 64;

// Programs from before there were bases read this version.
constexpr int64_t kVersionWithoutBase = 2;
constexpr absl::string_view kToJobDirectory = "../../";

struct Versioned {
  int64_t version = kVersionWithoutBase;
};

struct BaseText {
  std::string path;
  std::string sha256;
};

struct Contents {
  RunState state;  // All but the model and the base.
  Json model;      // Written by the table of its family.
  std::optional<BaseText> base;
  std::vector<StoredTensor> tensors;
};

// Accepts only one spelling of the path. This spelling can only lead to an attempt of the same
// directory.
absl::StatusOr<BaseReference> ReadBase(const BaseText& text) {
  absl::string_view epoch = text.path;
  const bool begins = absl::ConsumePrefix(&epoch, kToJobDirectory);
  const bool ends = absl::ConsumeSuffix(&epoch, absl::StrCat("/", kBaseName));
  const std::optional<int64_t> number = ParseEpochName(epoch);
  if (!begins || !ends || !number) {
    return absl::InvalidArgumentError(absl::StrCat("base.path: wanted ../../epoch-E/", kBaseName,
                                                   ", found \"",
                                                   absl::CEscape(text.path.substr(0, 64)), "\""));
  }
  return BaseReference{.epoch = *number, .sha256 = text.sha256};
}

std::string Sha256Of(absl::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

}  // namespace

template <typename V>
static void VisitFields(V& v, Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  v.Wholes(dims, Shape::kMaxRank);
  if constexpr (V::kReads) shape = Shape(dims);
}

template <typename V>
static void VisitFields(V& v, StoredBox& stored) {
  v("offset", stored.box.offset), v("extent", stored.box.extent), v("file", stored.file);
  v("file_offset", stored.file_offset), v("sha256", stored.sha256);
  std::optional<Shape> piece;
  if (stored.piece.rank() > 0) piece = stored.piece;
  v("piece", piece);
  if constexpr (V::kReads) {
    if (piece) stored.piece = *piece;
  }
}

template <typename V>
static void VisitFields(V& v, StoredTensor& tensor) {
  v("name", tensor.name);
  v.Named("kind", tensor.kind,
          {TensorKind::kParameter, TensorKind::kFirstMoment, TensorKind::kSecondMoment});
  v.Named("dtype", tensor.dtype, {DType::kF64, DType::kF32, DType::kBF16});
  v("shape", tensor.shape), v("boxes", tensor.boxes);
}

template <typename V>
static void VisitFields(V& v, CheckpointLayout& layout) {
  v.Whole("data", layout.data);
  ForEachAxis(layout, [&](const JobAxis& axis, auto& size) {
    axis.later ? v.LaterWhole(axis.name, size) : v.Whole(axis.name, size);
  });
  v.Later("schedule", layout.schedule), v.Later("zero", layout.zero);
  v.Whole("threads", layout.threads);
}

template <typename V>
static void VisitFields(V& v, Versioned& versioned) {
  v.Whole("version", versioned.version);
}

template <typename V>
static void VisitFields(V& v, BaseText& base) {
  v("path", base.path), v("sha256", base.sha256);
}

template <typename V>
static void VisitFields(V& v, Contents& contents) {
  RunState& state = contents.state;
  v("job_id", state.job_id), v.Whole("epoch", state.epoch), v.Whole("step", state.step);
  v.Whole("data_position", state.data_position), v("seed", state.seed);
  v.Whole("sequence", state.sequence), v.Later("deterministic", state.deterministic);
  v.Object("model", contents.model), v("layout", state.layout), v("build", state.build);
  v("base", contents.base), v("tensors", contents.tensors);
}

std::string ToJson(const Manifest& manifest) {
  const std::optional<BaseReference>& base = manifest.state.base;
  Contents contents{manifest.state, ToJson(manifest.state.model), std::nullopt, manifest.tensors};
  if (base) contents.base = BaseText{BasePath("../..", base->epoch), base->sha256};
  Json json;
  WriteFields(json, Versioned{base ? kCheckpointVersion : kVersionWithoutBase});
  WriteFields(json, contents);
  // The opening brace is on the first line, which is not hashed. Text that is not UTF-8 is
  // replaced, because the library would throw.
  const std::string rest =
      json.dump(1, ' ', false, Json::error_handler_t::replace).substr(1) + "\n";
  return absl::StrCat(kFirstLine, Sha256Of(rest), kFirstLineEnd, rest);
}

std::string ToString(const CheckpointLayout& layout) {
  Json json;
  WriteFields(json, layout);
  return json.dump();
}

std::string TensorsToJson(const std::vector<StoredTensor>& tensors) {
  Json list = Json::array();
  for (const StoredTensor& tensor : tensors) WriteFields(list.emplace_back(), tensor);
  return list.dump();
}

absl::StatusOr<std::vector<StoredTensor>> ParseTensors(absl::string_view text) {
  const Json json = ParseJson<Json>(text);
  if (!json.is_array()) return absl::InvalidArgumentError("wanted a JSON list");
  std::vector<StoredTensor> tensors(json.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    RETURN_IF_ERROR(ReadFields(json[i], tensors[i], absl::StrCat("tensors[", i, "]")));
  }
  return tensors;
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  const size_t first_line = kFirstLine.size() + kHexBytes + kFirstLineEnd.size();
  if (text.size() < first_line || text.substr(0, kFirstLine.size()) != kFirstLine ||
      text.substr(kFirstLine.size() + kHexBytes, kFirstLineEnd.size()) != kFirstLineEnd) {
    return absl::DataLossError("does not begin with its checksum: damaged, or no manifest");
  }
  const absl::string_view sha256 = text.substr(kFirstLine.size(), kHexBytes);
  const absl::string_view rest = text.substr(first_line);
  if (Sha256Of(rest) != sha256) return absl::DataLossError("does not match its checksum: damaged");
  const Json json = ParseJson<Json>(text);
  if (!json.is_object()) return absl::InvalidArgumentError("wanted a JSON object");
  Versioned versioned;
  RETURN_IF_ERROR(ReadFields(json, versioned));
  if (versioned.version < 1 || versioned.version > kCheckpointVersion) {
    return absl::UnimplementedError(
        absl::StrCat("wanted version 1 to ", kCheckpointVersion, ", found ", versioned.version));
  }
  Contents contents;
  RETURN_IF_ERROR(ReadFields(json, contents));
  ASSIGN_OR_RETURN(contents.state.model, ModelFromJson(contents.model));
  if (contents.base) {
    ASSIGN_OR_RETURN(contents.state.base, ReadBase(*contents.base));
  }
  ASSIGN_OR_RETURN(Manifest manifest,
                   MakeManifest(std::move(contents.state), std::move(contents.tensors)));
  manifest.sha256 = std::string(sha256);
  return manifest;
}

}  // namespace trainyard
