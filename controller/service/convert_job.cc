#include "controller/service/convert_job.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/protobuf_numbers.h"
#include "common/status_macros.h"
#include "common/violations.h"
#include "train/config/job_config.h"
#include "train/config/precision.h"
#include "train/config/resolved_job.h"
#include "train/config/validate.h"

namespace trainyard::controller {
namespace {

using google::protobuf::Message;

// Specs that people write have two thousand bytes. Rendering, parsing and checking cost memory and
// time in proportion.
constexpr size_t kMaxSpecBytes = 128 << 10;

// More than NVML knows of.
constexpr size_t kMaxThrottleReasons = 16;
constexpr size_t kMaxThrottleReasonBytes = 64;

// Maps have no order of their own on the wire; a retried request must compare equal.
std::string Deterministic(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

// A field that this build does not know would be ignored, which is not what its writer meant.
void FindUnknownFields(const Message& message, const std::string& path, Violations& violations) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    violations.Add(
        absl::StrCat(path, path.empty() ? "" : ".", "#", unknown.field(i).number()),
        "found a field that this controller does not know; wanted a field of JobSpec: is "
        "the client newer than the controller?");
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE ||
        field->is_repeated()) {
      continue;
    }
    FindUnknownFields(message.GetReflection()->GetMessage(message, field),
                      absl::StrCat(path, path.empty() ? "" : ".", field->name()), violations);
  }
}

std::string ModelName(const JobConfig& config) {
  if (!config.model.preset.empty()) return config.model.preset;
  return "inline";
}

JobFacts FactsOf(const JobConfig& config) {
  JobFacts facts;
  facts.name = config.name;
  facts.model = ModelName(config);
  facts.precision = Name(config.precision);
  facts.ranks = uint32_t(config.devices);
  CopyAxes(config.parallelism, facts);
  facts.global_batch = uint32_t(config.batch.global);
  facts.micro_batch = uint32_t(config.batch.micro);
  facts.sequence = uint32_t(config.batch.sequence);
  facts.priority = int32_t(config.priority);
  facts.steps = uint64_t(config.steps);
  facts.max_restarts = uint32_t(config.max_restarts);
  facts.cpu_only = !RowOf(config.precision).RunsOn(DeviceKind::kCuda);
  if (config.checkpoint) {
    facts.checkpoint_directory = config.checkpoint->directory;
    facts.checkpoint_every_steps = uint64_t(config.checkpoint->every_steps);
  }
  return facts;
}

std::vector<SpecPath> PathsOf(const v1::JobSpec& spec) {
  std::vector<SpecPath> paths;
  const auto add = [&](const char* field, const std::string& path) {
    if (!path.empty()) paths.push_back({field, path});
  };
  add("data.text.path", spec.data().text().path());
  add("data.indexed.prefix", spec.data().indexed().prefix());
  add("data.arrays.latents", spec.data().arrays().latents());
  add("data.arrays.labels", spec.data().arrays().labels());
  add("checkpoint.directory", spec.checkpoint().directory());
  add("init_from", spec.init_from());
  add("profile.directory", spec.profile().directory());
  return paths;
}

}  // namespace

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  return google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(absl::ToUnixMicros(time));
}

absl::Time FromTimestamp(const google::protobuf::Timestamp& time) {
  using google::protobuf::util::TimeUtil;
  // Nobody could print an answer with a time that is no Timestamp: before year 1, after year 9999.
  const int64_t seconds = std::clamp<int64_t>(time.seconds(), TimeUtil::kTimestampMinSeconds,
                                              TimeUtil::kTimestampMaxSeconds);
  const int32_t nanos = std::clamp(time.nanos(), 0, 999'999'999);
  return absl::FromUnixSeconds(seconds) + absl::Nanoseconds(nanos);
}

absl::StatusOr<std::string> SpecJson(const v1::JobSpec& spec) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(spec, &json, options);
  if (printed.ok()) return json;
  return absl::InvalidArgumentError(absl::StrCat("spec: ", printed.message().ToString()));
}

absl::StatusOr<std::shared_ptr<const Spec>> FromProto(const v1::JobSpec& spec) {
  Violations violations;
  if (const size_t size = spec.ByteSizeLong(); size > kMaxSpecBytes) {
    violations.Add("spec", Wanted(absl::StrCat("at most ", kMaxSpecBytes, " bytes"), size));
    return violations.ToStatus();
  }
  FindUnknownFields(spec, "", violations);
  RETURN_IF_ERROR(violations.ToStatus());
  ASSIGN_OR_RETURN(const std::string json, SpecJson(spec));
  ASSIGN_OR_RETURN(const JobConfig config, ParseAndValidateJob(json));
  JobFacts facts = FactsOf(config);
  facts.paths = PathsOf(spec);
  return std::make_shared<const Spec>(
      Spec{Deterministic(spec), ResolvedJobText(config), std::move(facts)});
}

v1::Job ToProto(const Job& job) {
  v1::Job out;
  out.set_id(job.id);
  out.mutable_spec()->ParseFromString(job.spec->bytes);
  out.set_state(v1::JobState(job.state));
  out.set_state_reason(job.state_reason);
  out.set_namespace_(job.spec->facts.name_space);
  out.set_submitter(job.spec->facts.submitter);
  out.set_revision(job.revision);
  out.set_epoch(job.epoch);
  out.set_restarts(job.restarts);
  out.set_restarts_without_progress(job.restarts_without_progress);
  *out.mutable_create_time() = ToTimestamp(job.create_time);
  if (job.start_time) *out.mutable_start_time() = ToTimestamp(*job.start_time);
  if (job.finish_time) *out.mutable_finish_time() = ToTimestamp(*job.finish_time);
  for (uint32_t i = 0; i < job.ranks.size(); ++i) {
    auto* placement = out.add_placement();
    placement->set_rank(i);
    placement->set_worker_id(job.ranks[i].worker_id);
    placement->set_device(job.ranks[i].device);
  }
  auto* progress = out.mutable_progress();
  progress->set_step(job.progress.step);
  progress->set_total_steps(job.spec->facts.steps);
  progress->set_loss(job.progress.loss);
  if (job.progress.validation_loss) progress->set_validation_loss(*job.progress.validation_loss);
  progress->set_tokens_per_second(job.progress.tokens_per_second);
  if (job.progress.mfu) progress->set_mfu(*job.progress.mfu);
  const uint64_t total = job.spec->facts.steps;
  const uint64_t left =
      IsTerminal(job.state) || job.progress.step > total ? 0 : total - job.progress.step;
  progress->set_eta_seconds(double(left) * job.progress.seconds_per_step);
  for (const Checkpoint& c : job.checkpoints) {
    auto* checkpoint = out.add_checkpoints();
    checkpoint->set_step(c.step);
    checkpoint->set_epoch(c.epoch);
    checkpoint->set_path(c.path);
    checkpoint->set_size_bytes(c.size_bytes);
    *checkpoint->mutable_create_time() = ToTimestamp(c.create_time);
  }
  return out;
}

v1::StepRecord ToProto(const StepRecord& step) {
  v1::StepRecord out;
  out.set_step(step.step);
  out.set_epoch(step.epoch);
  ForEachNumber(step, [&](const StepNumber& row, const auto& n) { SetNumber(out, row.name, n); });
  out.set_tokens(step.tokens);
  out.set_seconds(step.seconds);
  v1::PhaseSeconds& phases = *out.mutable_phases();
  for (const auto& [name, phase] : kPhases) SetNumber(phases, name, step.phases.*phase);
  *out.mutable_finish_time() = ToTimestamp(step.finish_time);
  out.set_skipped(step.skipped);
  const GpuReading& gpu = step.gpu;
  if (gpu.utilization) out.set_gpu_utilization_ratio(*gpu.utilization);
  if (gpu.power_watts) out.set_gpu_power_watts(*gpu.power_watts);
  if (gpu.sm_clock_hertz) out.set_gpu_sm_clock_hertz(*gpu.sm_clock_hertz);
  if (gpu.temperature_celsius) out.set_gpu_temperature_celsius(*gpu.temperature_celsius);
  for (const std::string& reason : gpu.throttle_reasons) out.add_gpu_throttle_reasons(reason);
  return out;
}

StepRecord FromProto(const v1::StepRecord& step) {
  StepRecord out;
  out.step = step.step();
  out.epoch = step.epoch();
  ForEachNumber(out, [&](const StepNumber& row, auto& n) { GetNumber(step, row.name, n); });
  out.tokens = step.tokens();
  out.seconds = std::isfinite(step.seconds()) && step.seconds() > 0 ? step.seconds() : 0;
  for (const auto& [name, phase] : kPhases) {  // They end in counters, which only grow.
    double& seconds = out.phases.*phase;
    GetNumber(step.phases(), name, seconds);
    if (!std::isfinite(seconds) || seconds < 0) seconds = 0;
  }
  out.finish_time = FromTimestamp(step.finish_time());
  out.skipped = step.skipped();
  GpuReading& gpu = out.gpu;
  if (step.has_gpu_utilization_ratio()) gpu.utilization = step.gpu_utilization_ratio();
  if (step.has_gpu_power_watts()) gpu.power_watts = step.gpu_power_watts();
  if (step.has_gpu_sm_clock_hertz()) gpu.sm_clock_hertz = step.gpu_sm_clock_hertz();
  if (step.has_gpu_temperature_celsius()) gpu.temperature_celsius = step.gpu_temperature_celsius();
  for (const std::string& reason : step.gpu_throttle_reasons()) {
    if (gpu.throttle_reasons.size() >= kMaxThrottleReasons) break;
    if (reason.size() <= kMaxThrottleReasonBytes) gpu.throttle_reasons.insert(reason);
  }
  return out;
}

v1::Event ToProto(const EventRecord& event) {
  v1::Event out;
  *out.mutable_time() = ToTimestamp(event.time);
  out.set_type(v1::EventType(event.type));
  out.set_epoch(event.epoch);
  out.set_message(event.message);
  return out;
}

v1::LogLine ToProto(const LogRecord& line) {
  v1::LogLine out;
  *out.mutable_time() = ToTimestamp(line.time);
  out.set_epoch(line.epoch);
  out.set_rank(line.rank);
  out.set_text(line.text);
  return out;
}

LogRecord FromProto(const v1::LogLine& line) {
  return {FromTimestamp(line.time()), line.epoch(), line.rank(), line.text()};
}

Checkpoint FromProto(const v1::Checkpoint& checkpoint) {
  return {checkpoint.step(), checkpoint.epoch(), checkpoint.path(), checkpoint.size_bytes(),
          FromTimestamp(checkpoint.create_time())};
}

}  // namespace trainyard::controller
