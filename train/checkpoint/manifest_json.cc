// The text of manifest.json. Its first line holds the SHA-256 of everything behind that line, so
// that a damaged manifest is found before anything in it is believed; what is read is then checked
// like any other input.

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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
constexpr int64_t kMaxInteger = int64_t{1} << 62;
// What programs before there were bases read.
constexpr int64_t kVersionWithoutBase = 2;

Json ToJson(const Shape& shape) {
  Json list = Json::array();
  for (int i = 0; i < shape.rank(); ++i) list.push_back(shape[i]);
  return list;
}

Json ToJson(const CheckpointLayout& layout) {
  return {{"data", layout.data},         {"tensor", layout.tensor},
          {"pipeline", layout.pipeline}, {"context", layout.context},
          {"expert", layout.expert},     {"virtual_pipeline", layout.virtual_pipeline},
          {"schedule", layout.schedule}, {"zero", layout.zero},
          {"threads", layout.threads}};
}

Json ToJson(const StoredTensor& tensor) {
  Json boxes = Json::array();
  for (const StoredBox& stored : tensor.boxes) {
    boxes.push_back({{"offset", ToJson(stored.box.offset)},
                     {"extent", ToJson(stored.box.extent)},
                     {"file", stored.file},
                     {"file_offset", stored.file_offset},
                     {"sha256", stored.sha256}});
    if (stored.piece.rank() > 0) boxes.back()["piece"] = ToJson(stored.piece);
  }
  return {{"name", tensor.name},
          {"kind", Name(tensor.kind)},
          {"dtype", Name(tensor.dtype)},
          {"shape", ToJson(tensor.shape)},
          {"boxes", std::move(boxes)}};
}

std::string Sha256Of(absl::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

// Reads fields by type; the first that is absent or of another type is the error, and what follows
// is not read.
class JsonFields {
 public:
  JsonFields(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  JsonFields& Read(const char* name, std::string& out) {
    if (const Json* value = Find(name, "a text");
        value != nullptr && Is(name, value->is_string(), "a text")) {
      out = value->get<std::string>();
    }
    return *this;
  }
  JsonFields& Read(const char* name, int64_t& out) {
    const char* wanted = "a whole number from 0 to 2^62";
    const Json* value = Find(name, wanted);
    if (value == nullptr || !Is(name, value->is_number_unsigned(), wanted)) return *this;
    const uint64_t number = value->get<uint64_t>();
    if (Is(name, number <= uint64_t(kMaxInteger), wanted)) out = int64_t(number);
    return *this;
  }
  JsonFields& Read(const char* name, uint64_t& out) {
    const char* wanted = "a whole number from 0 to 2^64 - 1";
    const Json* value = Find(name, wanted);
    if (value != nullptr && Is(name, value->is_number_unsigned(), wanted))
      out = value->get<uint64_t>();
    return *this;
  }
  JsonFields& Read(const char* name, double& out) {
    const Json* value = Find(name, "a number");
    if (value != nullptr && Is(name, value->is_number(), "a number")) out = value->get<double>();
    return *this;
  }
  JsonFields& Read(const char* name, bool& out) {
    const Json* value = Find(name, "true or false");
    if (value != nullptr && Is(name, value->is_boolean(), "true or false"))
      out = value->get<bool>();
    return *this;
  }
  JsonFields& Read(const char* name, Shape& out) {
    const char* wanted = "a list of at most 5 whole numbers from 0 to 2^62";
    const Json* value = Find(name, wanted);
    if (value == nullptr ||
        !Is(name, value->is_array() && value->size() <= Shape::kMaxRank, wanted))
      return *this;
    std::vector<int64_t> dims;
    for (const Json& dim : *value) {
      if (!Is(name, dim.is_number_unsigned() && dim.get<uint64_t>() <= uint64_t(kMaxInteger),
              wanted))
        return *this;
      dims.push_back(int64_t(dim.get<uint64_t>()));
    }
    out = Shape(dims);
    return *this;
  }
  // The value under `name`, or null after an error.
  const Json* Object(const char* name) {
    const Json* value = Find(name, "an object");
    return value != nullptr && Is(name, value->is_object(), "an object") ? value : nullptr;
  }
  const Json* List(const char* name) {
    const Json* value = Find(name, "a list");
    return value != nullptr && Is(name, value->is_array(), "a list") ? value : nullptr;
  }
  bool Has(const char* name) const { return json_.is_object() && json_.contains(name); }
  bool Is(const char* name, bool legal, absl::string_view wanted) {
    if (!legal && status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(path_, name, ": wanted ", wanted));
    }
    return legal;
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json* Find(const char* name, absl::string_view wanted) {
    if (!status_.ok() || !Is(name, Has(name), wanted)) return nullptr;
    return &json_.at(name);
  }

  const Json& json_;
  const std::string path_;
  absl::Status status_;
};

absl::StatusOr<StoredTensor> ReadTensor(const Json& json, const std::string& path) {
  StoredTensor tensor;
  std::string kind, dtype;
  JsonFields fields(json, path);
  fields.Read("name", tensor.name)
      .Read("kind", kind)
      .Read("dtype", dtype)
      .Read("shape", tensor.shape);
  const Json* boxes = fields.List("boxes");
  RETURN_IF_ERROR(fields.status());
  bool known = false;
  for (const TensorKind k :
       {TensorKind::kParameter, TensorKind::kFirstMoment, TensorKind::kSecondMoment}) {
    if (kind != Name(k)) continue;
    tensor.kind = k;
    known = true;
  }
  fields.Is("kind", known, "parameter, m or v");
  known = false;
  for (const DType d : {DType::kF64, DType::kF32, DType::kBF16}) {
    if (dtype != Name(d)) continue;
    tensor.dtype = d;
    known = true;
  }
  fields.Is("dtype", known, "f64, f32 or bf16");
  RETURN_IF_ERROR(fields.status());
  for (const Json& item : *boxes) {
    StoredBox& stored = tensor.boxes.emplace_back();
    JsonFields box(item, absl::StrCat(path, "boxes[", tensor.boxes.size() - 1, "]."));
    box.Read("offset", stored.box.offset)
        .Read("extent", stored.box.extent)
        .Read("file", stored.file)
        .Read("file_offset", stored.file_offset)
        .Read("sha256", stored.sha256);
    if (box.Has("piece")) box.Read("piece", stored.piece);
    RETURN_IF_ERROR(box.status());
  }
  return tensor;
}

absl::StatusOr<std::vector<StoredTensor>> ReadTensors(const Json& list) {
  std::vector<StoredTensor> tensors;
  for (const Json& item : list) {
    ASSIGN_OR_RETURN(StoredTensor tensor,
                     ReadTensor(item, absl::StrCat("tensors[", tensors.size(), "].")));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Json ToJson(const std::vector<StoredTensor>& tensors) {
  Json list = Json::array();
  for (const StoredTensor& tensor : tensors) list.push_back(ToJson(tensor));
  return list;
}

constexpr absl::string_view kToJobDirectory = "../../";

// One spelling of the path only, which leads nowhere but to an attempt of the same directory.
absl::StatusOr<BaseReference> ReadBase(const Json& json) {
  BaseReference base;
  std::string path;
  JsonFields fields(json, "base.");
  fields.Read("path", path).Read("sha256", base.sha256);
  RETURN_IF_ERROR(fields.status());
  absl::string_view epoch = path;
  const bool begins = absl::ConsumePrefix(&epoch, kToJobDirectory);
  const bool ends = absl::ConsumeSuffix(&epoch, absl::StrCat("/", kBaseName));
  const std::optional<int64_t> number = ParseEpochName(epoch);
  if (!begins || !ends || !number) {
    return absl::InvalidArgumentError(absl::StrCat("base.path: wanted ../../epoch-E/", kBaseName,
                                                   ", found \"", absl::CEscape(path.substr(0, 64)),
                                                   "\""));
  }
  base.epoch = *number;
  return base;
}

absl::StatusOr<Manifest> ReadManifest(const Json& json) {
  RunState state;
  JsonFields fields(json, "");
  fields.Read("job_id", state.job_id)
      .Read("epoch", state.epoch)
      .Read("step", state.step)
      .Read("data_position", state.data_position)
      .Read("seed", state.seed)
      .Read("sequence", state.sequence)
      .Read("build", state.build);
  // Absent from manifests of the builds before there was a choice.
  if (fields.Has("deterministic")) fields.Read("deterministic", state.deterministic);
  const Json* model = fields.Object("model");
  const Json* layout = fields.Object("layout");
  const Json* tensors = fields.List("tensors");
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(state.model, ModelFromJson(*model));
  JsonFields ranks(*layout, "layout.");
  ranks.Read("data", state.layout.data)
      .Read("tensor", state.layout.tensor)
      .Read("pipeline", state.layout.pipeline)
      .Read("context", state.layout.context)
      .Read("threads", state.layout.threads);
  // Absent from manifests of the first builds.
  if (ranks.Has("expert")) ranks.Read("expert", state.layout.expert);
  if (ranks.Has("virtual_pipeline")) ranks.Read("virtual_pipeline", state.layout.virtual_pipeline);
  if (ranks.Has("schedule")) ranks.Read("schedule", state.layout.schedule);
  if (ranks.Has("zero")) ranks.Read("zero", state.layout.zero);
  RETURN_IF_ERROR(ranks.status());
  if (fields.Has("base")) {
    const Json* base = fields.Object("base");
    RETURN_IF_ERROR(fields.status());
    ASSIGN_OR_RETURN(state.base, ReadBase(*base));
  }
  ASSIGN_OR_RETURN(std::vector<StoredTensor> stored, ReadTensors(*tensors));
  return MakeManifest(std::move(state), std::move(stored));
}

}  // namespace

std::string ToJson(const Manifest& manifest) {
  const RunState& state = manifest.state;
  Json json = {{"version", state.base ? kCheckpointVersion : kVersionWithoutBase},
               {"job_id", state.job_id},
               {"epoch", state.epoch},
               {"step", state.step},
               {"data_position", state.data_position},
               {"seed", state.seed},
               {"sequence", state.sequence},
               {"deterministic", state.deterministic},
               {"model", ToJson(state.model)},
               {"layout", ToJson(state.layout)},
               {"build", state.build}};
  if (state.base) {
    json["base"] = {{"path", BasePath("../..", state.base->epoch)}, {"sha256", state.base->sha256}};
  }
  json["tensors"] = ToJson(manifest.tensors);
  // The opening brace is on the first line, which is not part of what is hashed. Text that is not
  // UTF-8 is replaced rather than thrown at.
  const std::string rest =
      json.dump(1, ' ', false, Json::error_handler_t::replace).substr(1) + "\n";
  return absl::StrCat(kFirstLine, Sha256Of(rest), kFirstLineEnd, rest);
}

std::string ToString(const CheckpointLayout& layout) { return ToJson(layout).dump(); }

std::string TensorsToJson(const std::vector<StoredTensor>& tensors) {
  return ToJson(tensors).dump();
}

absl::StatusOr<std::vector<StoredTensor>> ParseTensors(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_array()) return absl::InvalidArgumentError("wanted a JSON list");
  return ReadTensors(json);
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
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return absl::InvalidArgumentError("wanted a JSON object");
  int64_t version = 0;
  JsonFields fields(json, "");
  fields.Read("version", version);
  RETURN_IF_ERROR(fields.status());
  if (version < 1 || version > kCheckpointVersion) {
    return absl::UnimplementedError(
        absl::StrCat("wanted version 1 to ", kCheckpointVersion, ", found ", version));
  }
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(json));
  manifest.sha256 = std::string(sha256);
  return manifest;
}

}  // namespace trainyard
