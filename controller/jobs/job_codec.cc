#include "controller/jobs/job_codec.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace trainyard::controller {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

Json FromTime(absl::Time time) { return absl::ToUnixMicros(time); }

// Reads fields of one object; the first wrong one is the status.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {
    if (!object_.is_object()) Fail("(object)");
  }

  template <typename T>
  void Number(const char* name, T& out) {
    const Json* field = Find(name);
    if (field == nullptr) return;
    if constexpr (std::is_floating_point_v<T>) {
      if (!field->is_number()) return Fail(name);
      out = field->get<T>();
    } else if (!ReadInteger(*field, out)) {
      Fail(name);
    }
  }
  // JSON has no NaN or infinity: they are written as null.
  void Real(const char* name, double& out) {
    const Json* field = Find(name);
    if (field == nullptr) return;
    if (field->is_null()) {
      out = std::numeric_limits<double>::quiet_NaN();
    } else {
      Number(name, out);
    }
  }
  template <typename T>
  void Enum(const char* name, T& out) {
    auto value = std::underlying_type_t<T>(out);
    Number(name, value);
    out = T(value);
  }
  void Text(const char* name, std::string& out) {
    const Json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_string()) return Fail(name);
    out = field->get<std::string>();
  }
  void Texts(const char* name, std::vector<std::string>& out) {
    const Json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_array()) return Fail(name);
    for (const Json& one : *field) {
      if (!one.is_string()) return Fail(name);
      out.push_back(one.get<std::string>());
    }
  }
  void Bool(const char* name, bool& out) {
    const Json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_boolean()) return Fail(name);
    out = field->get<bool>();
  }
  void Time(const char* name, absl::Time& out) {
    int64_t micros = absl::ToUnixMicros(out);
    Number(name, micros);
    out = absl::FromUnixMicros(micros);
  }
  void Time(const char* name, std::optional<absl::Time>& out) {
    if (!object_.is_object() || !object_.contains(name)) return;
    out.emplace();
    Time(name, *out);
  }
  template <typename T, typename Read>
  void List(const char* name, std::vector<T>& out, Read read) {
    const Json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_array()) return Fail(name);
    for (const Json& element : *field) {
      Reader reader(element);
      read(reader, out.emplace_back());
      if (!reader.status().ok()) status_ = reader.status();
    }
  }
  template <typename Read>
  void Object(const char* name, Read read) {
    const Json* field = Find(name);
    if (field == nullptr) return;
    Reader reader(*field);
    read(reader);
    if (!reader.status().ok()) status_ = reader.status();
  }
  void Pairs(const char* name, std::vector<Resume>& out) {
    const Json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_array()) return Fail(name);
    for (const Json& pair : *field) {
      Resume& resume = out.emplace_back();
      if (!pair.is_array() || pair.size() != 2 || !ReadInteger(pair[0], resume.epoch) ||
          !ReadInteger(pair[1], resume.step)) {
        return Fail(name);
      }
    }
  }
  void Counts(const char* name, std::map<std::string, uint32_t>& out) {
    const Json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_object()) return Fail(name);
    for (const auto& [key, count] : field->items()) {
      if (!ReadInteger(count, out[key])) return Fail(name);
    }
  }
  bool Has(const char* name) const { return object_.is_object() && object_.contains(name); }
  const absl::Status& status() const { return status_; }

 private:
  const Json* Find(const char* name) {
    if (Has(name)) return &object_.at(name);
    Fail(name);
    return nullptr;
  }
  void Fail(const char* name) {
    status_ =
        absl::DataLossError(absl::StrCat("stored job: field '", name, "' is missing or wrong"));
  }

  const Json& object_;
  absl::Status status_;
};

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Objects are filled field by field, here and below: from a list in braces, each field is made as
// an array of two first, and copied.
Json EncodeProgress(const Progress& p) {
  Json json;
  json["step"] = p.step;
  json["furthest_step"] = p.furthest_step;
  json["loss"] = p.loss;
  json["tokens_per_second"] = p.tokens_per_second;
  json["seconds_per_step"] = p.seconds_per_step;
  if (p.validation_loss) json["validation_loss"] = *p.validation_loss;
  if (p.mfu) json["mfu"] = *p.mfu;
  return json;
}

void ReadProgress(Reader& r, Progress& p) {
  r.Number("step", p.step);
  r.Number("furthest_step", p.furthest_step);
  r.Real("loss", p.loss);
  r.Real("tokens_per_second", p.tokens_per_second);
  r.Real("seconds_per_step", p.seconds_per_step);
  if (r.Has("validation_loss")) r.Real("validation_loss", p.validation_loss.emplace());
  if (r.Has("mfu")) r.Real("mfu", p.mfu.emplace());
}

void ReadRank(Reader& r, Rank& rank) {
  r.Text("worker", rank.worker_id);
  r.Text("host", rank.hostname);
  r.Number("device", rank.device);
  r.Enum("phase", rank.phase);
  r.Enum("cause", rank.cause);
}

void ReadCheckpoint(Reader& r, Checkpoint& c) {
  r.Number("step", c.step);
  r.Number("epoch", c.epoch);
  r.Text("path", c.path);
  r.Number("size_bytes", c.size_bytes);
  r.Time("create_time", c.create_time);
}

absl::StatusOr<Json> Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return absl::DataLossError("stored job: not JSON");
  return json;
}

}  // namespace

std::string EncodeFacts(const JobFacts& f) {
  Json json, paths = Json::array();
  for (const SpecPath& named : f.paths) {
    paths.push_back({{"field", named.field}, {"path", named.path}});
  }
  json["name"] = f.name;
  json["model"] = f.model;
  json["precision"] = f.precision;
  json["ranks"] = f.ranks;
  json["tensor"] = f.tensor;
  json["pipeline"] = f.pipeline;
  json["virtual_pipeline"] = f.virtual_pipeline;
  json["context"] = f.context;
  json["expert"] = f.expert;
  json["global_batch"] = f.global_batch;
  json["micro_batch"] = f.micro_batch;
  json["sequence"] = f.sequence;
  json["priority"] = f.priority;
  json["steps"] = f.steps;
  json["max_restarts"] = f.max_restarts;
  json["cpu_only"] = f.cpu_only;
  json["checkpoint_directory"] = f.checkpoint_directory;
  if (f.checkpoint_every_steps > 0) json["checkpoint_every_steps"] = f.checkpoint_every_steps;
  json["namespace"] = f.name_space;
  json["submitter"] = f.submitter;
  json["roots"] = f.roots;
  json["paths"] = std::move(paths);
  return Text(json);
}

absl::StatusOr<JobFacts> DecodeFacts(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, Parse(text));
  JobFacts f;
  Reader r(json);
  r.Text("name", f.name);
  r.Text("model", f.model);
  r.Text("precision", f.precision);
  r.Number("ranks", f.ranks);
  r.Number("tensor", f.tensor);
  r.Number("pipeline", f.pipeline);
  r.Number("virtual_pipeline", f.virtual_pipeline);
  r.Number("context", f.context);
  r.Number("expert", f.expert);
  r.Number("global_batch", f.global_batch);
  r.Number("micro_batch", f.micro_batch);
  r.Number("sequence", f.sequence);
  r.Number("priority", f.priority);
  r.Number("steps", f.steps);
  r.Number("max_restarts", f.max_restarts);
  r.Bool("cpu_only", f.cpu_only);
  r.Text("checkpoint_directory", f.checkpoint_directory);
  if (r.Has("checkpoint_every_steps")) r.Number("checkpoint_every_steps", f.checkpoint_every_steps);
  r.Text("namespace", f.name_space);
  r.Text("submitter", f.submitter);
  r.Texts("roots", f.roots);
  // The last release wrote none. Its waiting jobs are held to the roots of their submission.
  if (r.Has("paths")) {
    r.List("paths", f.paths, [](Reader& path, SpecPath& out) {
      path.Text("field", out.field);
      path.Text("path", out.path);
    });
  }
  RETURN_IF_ERROR(r.status());
  return f;
}

std::string EncodeJob(const Job& job) {
  Json ranks = Json::array(), checkpoints = Json::array();
  for (const Rank& rank : job.ranks) {
    Json& json = ranks.emplace_back();
    json["worker"] = rank.worker_id;
    json["host"] = rank.hostname;
    json["device"] = rank.device;
    json["phase"] = int(rank.phase);
    json["cause"] = int(rank.cause);
  }
  for (const Checkpoint& c : job.checkpoints) {
    Json& json = checkpoints.emplace_back();
    json["step"] = c.step;
    json["epoch"] = c.epoch;
    json["path"] = c.path;
    json["size_bytes"] = c.size_bytes;
    json["create_time"] = FromTime(c.create_time);
  }
  Json json;
  json["version"] = kVersion;
  json["state"] = int(job.state);
  json["state_reason"] = job.state_reason;
  json["revision"] = job.revision;
  json["epoch"] = job.epoch;
  json["restarts"] = job.restarts;
  json["restarts_without_progress"] = job.restarts_without_progress;
  json["furthest_checkpoint"] = job.furthest_checkpoint;
  json["create_time"] = FromTime(job.create_time);
  json["ranks"] = std::move(ranks);
  json["progress"] = EncodeProgress(job.progress);
  json["checkpoints"] = std::move(checkpoints);
  json["stop_mode"] = int(job.stop_mode);
  json["outcome"] = int(job.outcome);
  json["culprit"] = int(job.culprit);
  json["attempt_end_time"] = FromTime(job.attempt_end_time);
  if (job.resumed_step) json["resumed_step"] = *job.resumed_step;
  json["resumes"] = Json::array();
  for (const Resume& resume : job.resumes) json["resumes"].push_back({resume.epoch, resume.step});
  json["claimed"] = job.claimed;
  json["epoch_floor"] = job.epoch_floor;
  json["storage_faults"] = job.storage_faults;
  json["strikes"] = job.strikes;
  json["earlier_workers"] = job.earlier_workers;
  if (job.start_time) json["start_time"] = FromTime(*job.start_time);
  if (job.finish_time) json["finish_time"] = FromTime(*job.finish_time);
  return Text(json);
}

absl::StatusOr<Job> DecodeJob(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, Parse(text));
  Job job;
  Reader r(json);
  int version = 0;
  r.Number("version", version);
  r.Enum("state", job.state);
  r.Text("state_reason", job.state_reason);
  r.Number("revision", job.revision);
  r.Number("epoch", job.epoch);
  r.Number("restarts", job.restarts);
  r.Number("restarts_without_progress", job.restarts_without_progress);
  r.Number("furthest_checkpoint", job.furthest_checkpoint);
  r.Time("create_time", job.create_time);
  r.Time("start_time", job.start_time);
  r.Time("finish_time", job.finish_time);
  r.List("ranks", job.ranks, ReadRank);
  r.Object("progress", [&](Reader& inner) { ReadProgress(inner, job.progress); });
  if (r.Has("resumed_step")) r.Number("resumed_step", job.resumed_step.emplace());
  job.claimed = job.furthest_checkpoint > 0;
  // A version before this one wrote none of these, and this one writes all.
  const auto newer = {"resumes", "claimed", "epoch_floor", "storage_faults", "strikes"};
  if (std::any_of(newer.begin(), newer.end(), [&](const char* name) { return r.Has(name); })) {
    r.Pairs("resumes", job.resumes);
    r.Bool("claimed", job.claimed);
    r.Number("epoch_floor", job.epoch_floor);
    r.Number("storage_faults", job.storage_faults);
    r.Counts("strikes", job.strikes);
  }
  // Newer still.
  if (r.Has("earlier_workers")) {
    std::vector<std::string> workers;
    r.Texts("earlier_workers", workers);
    job.earlier_workers = {workers.begin(), workers.end()};
  }
  r.List("checkpoints", job.checkpoints, ReadCheckpoint);
  r.Enum("stop_mode", job.stop_mode);
  r.Enum("outcome", job.outcome);
  r.Enum("culprit", job.culprit);
  r.Time("attempt_end_time", job.attempt_end_time);
  RETURN_IF_ERROR(r.status());
  if (version != kVersion) {
    return absl::DataLossError(
        absl::StrCat("stored job: wanted version ", kVersion, ", found ", version));
  }
  return job;
}

}  // namespace trainyard::controller
