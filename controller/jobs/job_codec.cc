#include "controller/jobs/job_codec.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json_fields.h"
#include "common/status_macros.h"

namespace trainyard::controller {

template <typename V>
static void VisitFields(V& v, SpecPath& p) {
  v("field", p.field), v("path", p.path);
}

template <typename V>
static void VisitFields(V& v, JobFacts& f) {
  v("name", f.name), v("model", f.model), v("precision", f.precision);
  v("ranks", f.ranks);
  ForEachAxis(f, [&](const JobAxis& axis, auto& size) { v(axis.name, size); });
  v("global_batch", f.global_batch), v("micro_batch", f.micro_batch), v("sequence", f.sequence);
  v("priority", f.priority), v("steps", f.steps), v("max_restarts", f.max_restarts);
  v("cpu_only", f.cpu_only), v("checkpoint_directory", f.checkpoint_directory);
  v.Later("checkpoint_every_steps", f.checkpoint_every_steps);
  v("namespace", f.name_space), v("submitter", f.submitter), v("roots", f.roots);
  v.Later("paths", f.paths);  // Without them, a waiting job is held to the roots of its submission.
}

template <typename V>
static void VisitFields(V& v, Rank& rank) {
  v("worker", rank.worker_id), v("host", rank.hostname), v("device", rank.device);
  v("phase", rank.phase), v("cause", rank.cause);
}

template <typename V>
static void VisitFields(V& v, Progress& p) {
  v("step", p.step), v("furthest_step", p.furthest_step), v("loss", p.loss);
  v("tokens_per_second", p.tokens_per_second), v("seconds_per_step", p.seconds_per_step);
  v("validation_loss", p.validation_loss), v("mfu", p.mfu);
}

template <typename V>
static void VisitFields(V& v, Checkpoint& c) {
  v("step", c.step), v("epoch", c.epoch), v("path", c.path), v("size_bytes", c.size_bytes);
  v("create_time", c.create_time);
}

template <typename V>
static void VisitFields(V& v, Resume& resume) {
  v.Pair(resume.epoch, resume.step);
}

template <typename V>
static void VisitFields(V& v, Job& job) {
  v("state", job.state), v("state_reason", job.state_reason), v("revision", job.revision);
  v("epoch", job.epoch), v("restarts", job.restarts);
  v("restarts_without_progress", job.restarts_without_progress);
  v("furthest_checkpoint", job.furthest_checkpoint);
  v("create_time", job.create_time), v("start_time", job.start_time);
  v("finish_time", job.finish_time), v("ranks", job.ranks), v("progress", job.progress);
  v("checkpoints", job.checkpoints), v("resumed_step", job.resumed_step);
  v("stop_mode", job.stop_mode), v("outcome", job.outcome), v("culprit", job.culprit);
  v("attempt_end_time", job.attempt_end_time);
  v.Later("resumes", job.resumes), v.Later("claimed", job.claimed);
  v.Later("consequence", job.consequence);
  v.Later("epoch_floor", job.epoch_floor), v.Later("storage_faults", job.storage_faults);
  v.Later("strikes", job.strikes), v.Later("earlier_workers", job.earlier_workers);
}

namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Json> Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return absl::DataLossError("stored job: not JSON");
  return json;
}

template <typename T>
absl::Status Read(const Json& json, T& value) {
  const absl::Status status = ReadFields(json, value);
  if (status.ok()) return status;
  return absl::DataLossError(absl::StrCat("stored job: ", status.message()));
}

}  // namespace

std::string EncodeFacts(const JobFacts& facts) {
  Json json;
  WriteFields(json, facts);
  return Text(json);
}

absl::StatusOr<JobFacts> DecodeFacts(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, Parse(text));
  JobFacts facts;
  RETURN_IF_ERROR(Read(json, facts));
  return facts;
}

std::string EncodeJob(const Job& job) {
  Json json;
  json["version"] = kVersion;
  WriteFields(json, job);
  return Text(json);
}

absl::StatusOr<Job> DecodeJob(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, Parse(text));
  Job job;
  RETURN_IF_ERROR(Read(json, job));
  // The first releases stored none of these, and later ones all.
  const auto later = {"resumes", "claimed", "epoch_floor", "storage_faults", "strikes"};
  const auto stored = std::count_if(later.begin(), later.end(),
                                    [&](const char* name) { return json.contains(name); });
  if (stored == 0) job.claimed = job.furthest_checkpoint > 0;
  if (stored != 0 && size_t(stored) != later.size()) {
    return absl::DataLossError("stored job: what is known of earlier attempts is not whole");
  }
  if (!absl::EndsWith(job.state_reason, job.consequence)) {
    return absl::DataLossError("stored job: its state_reason does not end with its consequence");
  }
  if (const auto version = json.find("version"); version == json.end() || *version != kVersion) {
    return absl::DataLossError(
        absl::StrCat("stored job: wanted version ", kVersion, ", found ",
                     version == json.end() ? "none" : version->dump().substr(0, 20)));
  }
  return job;
}

}  // namespace trainyard::controller
