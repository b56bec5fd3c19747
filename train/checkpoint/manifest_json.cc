// The text of manifest.json. The first line has the SHA-256 of everything after that line, so that
// damage is found before any value is used. The values are then checked like any other input.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "models/arch/config_json.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/paths.h"

namespace trainyard {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr absl::string_view kFirstLine = "{\"manifest_sha256\": \"";
constexpr absl::string_view kFirstLineEnd = "\",\n";
constexpr size_t kHexBytes = 64;

// Programs from before there were bases, adapters, or weights in NF4, read these versions.
constexpr int64_t kVersionWithoutBase = 2, kVersionWithoutAdapter = 3, kVersionWithoutNf4 = 4;
constexpr absl::string_view kToJobDirectory = "../../";

struct Contents {
  RunState state;     // All but the model.
  OrderedJson model;  // Written by the table of its family.
  std::vector<StoredTensor> tensors;
};

// Accepts only one spelling of the path. This spelling can only lead to an attempt of the same
// directory.
std::optional<int64_t> EpochOfBase(absl::string_view path) {
  const bool begins = absl::ConsumePrefix(&path, kToJobDirectory);
  const bool ends = absl::ConsumeSuffix(&path, absl::StrCat("/", kBaseName));
  return begins && ends ? ParseEpochName(path) : std::nullopt;
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
  if (V::kReads || stored.piece.rank() > 0) v.Later("piece", stored.piece);
}

static void VisitFields(auto& v, StoredTensor& tensor) {
  v("name", tensor.name);
  v.Named("kind", tensor.kind,
          {TensorKind::kParameter, TensorKind::kFirstMoment, TensorKind::kSecondMoment});
  v.Named("dtype", tensor.dtype, {DType::kF64, DType::kF32, DType::kBF16, DType::kU8});
  v("shape", tensor.shape), v("boxes", tensor.boxes);
}

static void VisitFields(auto& v, CheckpointLayout& layout) {
  v.Whole("data", layout.data);
  ForEachAxis(layout, [&](const JobAxis& axis, auto& size) {
    axis.later ? v.LaterWhole(axis.name, size) : v.Whole(axis.name, size);
  });
  v.Later("schedule", layout.schedule), v.Later("zero", layout.zero);
  v.Whole("threads", layout.threads);
}

template <typename V>
static void VisitFields(V& v, BaseReference& base) {
  std::string path = BasePath("../..", base.epoch);
  v("path", path), v("sha256", base.sha256);
  if constexpr (V::kReads) {
    const std::optional<int64_t> epoch = EpochOfBase(path);
    v.Expect(epoch.has_value(), "path",
             absl::StrCat("../../epoch-E/", kBaseName, ", found \"",
                          absl::CEscape(path.substr(0, 64)), "\""));
    base.epoch = epoch.value_or(0);
  }
}

namespace {

// LoraNumbers::nf4.
struct BaseInNf4 {
  DType rounded_to = DType::kBF16;
};

}  // namespace

static void VisitFields(auto& v, BaseInNf4& base) {
  v.Named("rounded_to", base.rounded_to, {DType::kF64, DType::kF32, DType::kBF16});
}

template <typename V>
static void VisitFields(V& v, LoraNumbers& adapter) {
  v.Whole("rank", adapter.rank), v("alpha", adapter.alpha), v("rslora", adapter.rslora);
  v.Later("dora", adapter.dora);  // Earlier adapters have none.
  std::optional<BaseInNf4> nf4;
  if (adapter.nf4) nf4 = BaseInNf4{*adapter.nf4};
  v("nf4", nf4);
  if constexpr (V::kReads) adapter.nf4 = nf4 ? std::optional(nf4->rounded_to) : std::nullopt;
}

static void VisitFields(auto& v, ValidationResult& validation) {
  v("loss", validation.loss), v("measure", validation.measure);
}

static void VisitFields(auto& v, Contents& contents) {
  RunState& state = contents.state;
  v("job_id", state.job_id), v.Whole("epoch", state.epoch), v.Whole("step", state.step);
  v.Whole("data_position", state.data_position), v("seed", state.seed);
  v.Whole("sequence", state.sequence), v.Later("deterministic", state.deterministic);
  v.Seldom("bf16_weights", state.bf16_weights);
  v.Object("model", contents.model), v("layout", state.layout), v("build", state.build);
  v("base", state.base), v("adapter", state.adapter), v("validation", state.validation);
  v("tensors", contents.tensors);
}

std::string ToJson(const Manifest& manifest) {
  OrderedJson json;
  const RunState& state = manifest.state;
  const bool packed = std::any_of(
      manifest.tensors.begin(), manifest.tensors.end(),
      [](const StoredTensor& tensor) { return tensor.dtype == DType::kU8; });  // Of a base.
  const bool nf4 = packed || (state.adapter && state.adapter->nf4);
  json["version"] = nf4             ? kCheckpointVersion
                    : state.adapter ? kVersionWithoutNf4
                    : state.base    ? kVersionWithoutAdapter
                                    : kVersionWithoutBase;
  WriteFields(json, Contents{manifest.state, ToJson(manifest.state.model), manifest.tensors});
  // The opening brace is on the first line, which is not hashed. Text that is not UTF-8 is
  // replaced, because the library would throw.
  const std::string rest = JsonText(json, 1).substr(1) + "\n";
  return absl::StrCat(kFirstLine, Sha256Of(rest), kFirstLineEnd, rest);
}

std::string ToString(const CheckpointLayout& layout) {
  OrderedJson json;
  WriteFields(json, layout);
  return JsonText(json);
}

std::string TensorsToJson(const std::vector<StoredTensor>& tensors) {
  OrderedJson list;
  WriteFields(list, tensors);
  return JsonText(list);
}

absl::StatusOr<std::vector<StoredTensor>> ParseTensors(absl::string_view text) {
  const OrderedJson json = ParseJson<OrderedJson>(text);
  if (!json.is_array()) return absl::InvalidArgumentError("wanted a JSON list");
  std::vector<StoredTensor> tensors;
  RETURN_IF_ERROR(ReadFields(json, tensors, "tensors"));
  return tensors;
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  absl::string_view rest = text;
  const bool begins = absl::ConsumePrefix(&rest, kFirstLine);
  const absl::string_view sha256 = rest.substr(0, kHexBytes);
  rest.remove_prefix(sha256.size());
  if (!begins || !absl::ConsumePrefix(&rest, kFirstLineEnd)) {
    return absl::DataLossError("does not begin with its checksum: damaged, or no manifest");
  }
  if (Sha256Of(rest) != sha256) return absl::DataLossError("does not match its checksum: damaged");
  const OrderedJson json = ParseJson<OrderedJson>(text);
  if (!json.is_object()) return absl::InvalidArgumentError("wanted a JSON object");
  int64_t version = 0;
  absl::Status status;
  JsonReader<OrderedJson>(json, "", status).Whole("version", version);
  RETURN_IF_ERROR(status);
  if (version < 1 || version > kCheckpointVersion) {
    return absl::UnimplementedError(
        absl::StrCat("wanted version 1 to ", kCheckpointVersion, ", found ", version));
  }
  Contents contents;
  RETURN_IF_ERROR(ReadFields(json, contents));
  ASSIGN_OR_RETURN(contents.state.model, ModelFromJson(contents.model));
  ASSIGN_OR_RETURN(Manifest manifest,
                   MakeManifest(std::move(contents.state), std::move(contents.tensors)));
  manifest.sha256 = std::string(sha256);
  return manifest;
}

}  // namespace trainyard
