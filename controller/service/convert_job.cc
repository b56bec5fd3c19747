#include "controller/service/convert_job.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/violations.h"
#include "train/config/declared_values.h"
#include "train/config/message_node.h"
#include "train/config/precision.h"
#include "train/config/resolved_job.h"
#include "train/config/validate.h"
#include "train/config/yaml.h"

namespace trainyard::controller {
namespace {

using google::protobuf::Message;

// Specs that people write have two thousand bytes. Rendering, parsing and checking cost memory and
// time in proportion.
constexpr size_t kMaxSpecBytes = 128 << 10;

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

JobFacts FactsOf(const JobConfig& config) {
  JobFacts facts;
  facts.name = config.name;
  facts.model = config.model.preset.empty() ? "inline" : config.model.preset;
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
  if (config.continues) {
    facts.continues = config.continues->job;
    facts.continues_epoch = uint64_t(config.continues->epoch);
  }
  facts.paths = PathsOf(config);
  return facts;
}

}  // namespace

absl::StatusOr<std::string> SpecJson(const v1::JobSpec& spec) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(spec, &json, options);
  if (printed.ok()) return json;
  return absl::InvalidArgumentError(absl::StrCat("spec: ", printed.message().ToString()));
}

absl::StatusOr<std::shared_ptr<const Spec>> FromProto(const v1::JobSpec& spec) {
  if (const size_t size = spec.ByteSizeLong(); size > kMaxSpecBytes) {
    return WrongField("spec", absl::StrCat("at most ", kMaxSpecBytes, " bytes"), size);
  }
  Violations violations;
  const YamlNode document = NodeOf(spec, violations);
  RETURN_IF_ERROR(violations.ToStatus());
  const JobConfig config = ParseAndValidateSpec(document, violations);
  RETURN_IF_ERROR(violations.ToStatus());
  std::string resolved = ResolvedJobText(config);
  // The rank's configuration is around it.
  if (const size_t most = kMaxYamlBytes - (32 << 10); resolved.size() > most) {
    return WrongField("spec", absl::StrCat("at most ", most, " bytes as JSON, which ranks read"),
                      resolved.size());
  }
  return std::make_shared<const Spec>(
      Spec{Deterministic(spec), std::move(resolved), FactsOf(config)});
}

v1::Job ToProto(const Job& job) {
  const JobFacts& facts = job.spec->facts;
  v1::Job out;
  WriteMessage(job, out);
  out.set_id(job.id);
  out.mutable_spec()->ParseFromString(job.spec->bytes);
  out.set_namespace_(facts.name_space);
  out.set_submitter(facts.submitter);
  for (const Rank& rank : job.ranks) {
    const uint32_t number = uint32_t(out.placement_size());
    WriteMessage(RankPlacement{number, rank.device, rank.worker_id}, *out.add_placement());
  }
  v1::Progress& progress = *out.mutable_progress();
  progress.set_total_steps(facts.steps);
  if (WaitsForAttempt(job.state)) {
    progress.clear_tokens_per_second();
    progress.clear_mfu();
  } else if (!IsTerminal(job.state) && job.progress.step <= facts.steps) {
    const uint64_t left = facts.steps - job.progress.step;
    progress.set_eta_seconds(double(left) * job.progress.seconds_per_step);
  }
  return out;
}

}  // namespace trainyard::controller
