#include "train/config/parse.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/interval.h"
#include "kernels/device/narrow.h"
#include "train/config/earlier_formats.h"
#include "train/config/fields.h"
#include "train/config/job_fields.h"
#include "train/config/precision.h"
#include "train/config/read_model.h"
#include "train/config/resolved_job.h"

namespace trainyard {
namespace {

JobConfig ReadResolved(const YamlNode& node, const std::string& path, Violations& violations) {
  JobConfig job;
  const YamlNode whole = WithLaterFields(node);
  Fields fields(whole, path, violations, Absent::kWrong);
  int64_t format = 0;
  fields.Field("format", format);
  if (format < kOldestResolvedJobFormat || format > kResolvedJobFormat) {
    // The fields mean what another release defined.
    violations.Add(path,
                   absl::StrCat("a job resolved in format ", kOldestResolvedJobFormat, " to ",
                                kResolvedJobFormat, ", which this release reads"),
                   absl::StrCat("format ", format));
    fields.KnowAll();
    return job;
  }
  VisitJob(fields, job);
  return job;
}

// `path` is the path of the job: "" if the job is the document itself.
JobConfig ReadJob(const YamlNode& node, const std::string& path, Violations& violations,
                  bool may_be_resolved = true) {
  if (may_be_resolved && node.Find("format") != nullptr) {
    return ReadResolved(node, path, violations);
  }
  JobConfig job;
  Fields fields(node, path, violations);
  VisitJob(fields, job);
  return job;
}

// `multiplied` is the dtype of the job's products.
void ReadRank(Fields& fields, DType multiplied, RankConfig& out) {
  fields.Field("job_id", out.job_id);
  fields.Field("epoch", kInt64, out.epoch);
  fields.Field("rank", kUint32, out.rank);
  fields.Field("world", {.most = kUint32.most}, out.world);
  fields.EnumField<DeviceKind>("device_kind", "DEVICE_KIND_",
                               {{"CPU", DeviceKind::kCpu}, {"CUDA", DeviceKind::kCuda}},
                               out.device_kind);
  fields.Field("device", kUint32, out.device);
  fields.Field("device_uuid", out.device_uuid);
  fields.Field("threads", {.most = 4096}, out.threads);
  fields.Field("processors", out.processors);
  fields.Field("interface", out.interface);
  fields.Field("roots", out.roots);
  fields.Field("socket", out.socket);
  fields.Field("exit_report", out.exit_report);
  // A daemon of the version before lists recorded checkpoints. The directory has this information
  // itself.
  std::vector<std::string> recorded;
  fields.Field("checkpoints", recorded);
  out.claimed = !recorded.empty();
  fields.Field("claimed", out.claimed);
  fields.Field("recorded_step", kInt64, out.recorded_step);
  fields.Field("history_after", kInt64, out.history_after);
  fields.Field("recorded_epoch", kInt64, out.recorded_epoch);
  fields.Field("memory_bytes", out.memory_bytes);
  // A daemon of the version before chose the dtype itself.
  fields.Field("peak_flops", out.peak_flops);
  std::map<std::string, double> peaks;
  fields.Field("peak_flops_by_dtype", peaks);
  const auto peak = peaks.find(IsNarrow(multiplied) ? "fp8" : Name(multiplied));
  if (peak != peaks.end()) out.peak_flops = peak->second;
  fields.Field("patience_seconds", out.patience_seconds);
}

void CheckRank(const RankConfig& rank, Violations& violations) {
  if (rank.job_id.empty()) violations.Add("rank.job_id", "the job's id", "none");
  if (rank.rank >= rank.world) {
    violations.Add("rank.rank", absl::StrCat("less than rank.world = ", rank.world), rank.rank);
  }
  if (rank.memory_bytes) violations.Check("rank.memory_bytes", *rank.memory_bytes, {});
  if (rank.peak_flops) violations.Check("rank.peak_flops", *rank.peak_flops, {.above = 0});
  if (rank.patience_seconds) {
    violations.Check("rank.patience_seconds", *rank.patience_seconds, {.above = 0});
  }
  for (size_t i = 0; i < rank.roots.size(); ++i) {
    if (rank.roots[i].empty() || rank.roots[i][0] != '/') {
      violations.Add(absl::StrCat("rank.roots[", i, "]"), "an absolute path",
                     Quoted(rank.roots[i]));
    }
  }
}

// Wraps a job spec by itself, which is what a person usually has, in a whole config.
YamlNode Whole(YamlNode document) {
  if (document.Find("version") != nullptr || document.Find("job") != nullptr) return document;
  YamlNode version, whole;
  version.kind = YamlNode::Kind::kScalar;
  version.text = absl::StrCat(kTrainerConfigVersion);
  whole.kind = YamlNode::Kind::kMapping;
  whole.fields = {{"version", std::move(version)}, {"job", std::move(document)}};
  return whole;
}

}  // namespace

std::optional<YamlNode> ParseDocument(absl::string_view text, Violations& violations) {
  absl::StatusOr<YamlNode> document = ParseYaml(text);
  if (document.ok()) return *std::move(document);
  violations.Add({.note = std::string(document.status().message())});
  return std::nullopt;
}

void FindMissing(const YamlNode& document, Violations& violations) {
  const auto is_mapping = [](const YamlNode& node) {
    return node.kind == YamlNode::Kind::kMapping || node.kind == YamlNode::Kind::kNull;
  };
  const YamlNode none;
  const YamlNode* const job = document.Find("job");
  const YamlNode& spec = job == nullptr ? document : *job;
  const YamlNode* const given = spec.Find("optimizer");
  const YamlNode& section = given == nullptr ? none : *given;
  // What is no mapping is an error already. A resolved job is read as a whole.
  if (!is_mapping(spec) || !is_mapping(section) || spec.Find("format") != nullptr) return;
  const std::string field = job == nullptr ? "optimizer" : "job.optimizer";
  std::vector<std::string> names;
  for (const Optimizer* const optimizer : Optimizers()) {
    names.push_back(optimizer->name);
    const YamlNode* const chosen = section.Find(optimizer->name);
    if (chosen == nullptr) continue;
    for (const OptimizerOption& option : optimizer->options) {
      const bool has_default = option.legal.Holds(option.standard);
      if (has_default || !is_mapping(*chosen) || chosen->Find(option.name) != nullptr) continue;
      violations.Add(absl::StrCat(field, ".", optimizer->name, ".", option.name),
                     option.legal.Words(), "none");
    }
    return;
  }
  violations.Add(field,
                 absl::StrCat("one of ", absl::StrJoin(names, ", "), ", with its learning_rate"),
                 "none");
}

JobConfig ParseJobConfig(const YamlNode& document, Violations& violations) {
  return ReadJob(document, "", violations);
}

JobConfig ParseSpec(const YamlNode& document, Violations& violations) {
  return ReadJob(document, "", violations, /*may_be_resolved=*/false);
}

TrainerConfig ParseTrainerConfig(absl::string_view text, Violations& violations) {
  TrainerConfig config;
  std::optional<YamlNode> document = ParseDocument(text, violations);
  if (!document) return config;
  const YamlNode whole = Whole(*std::move(document));
  Fields fields(whole, "", violations);
  int64_t version = 0;
  fields.Field("version", kUint32, version);
  if (version != kTrainerConfigVersion) {
    violations.Add("version", absl::StrCat(kTrainerConfigVersion, ", which this trainer reads"),
                   version);
  }
  if (fields.Present("job")) {
    config.job = ReadJob(*whole.Find("job"), "job", violations);
  } else {
    violations.Add("job", "the job to train", "none");
  }
  const DType multiplied = RowOf(config.job.precision).formats.multiplied();
  if (fields.Section("rank", [&](Fields& f) { ReadRank(f, multiplied, config.rank.emplace()); })) {
    CheckRank(*config.rank, violations);
  }
  return config;
}

absl::StatusOr<JobConfig> ParseJobConfig(absl::string_view text) {
  Violations violations;
  const std::optional<YamlNode> document = ParseDocument(text, violations);
  JobConfig job = document ? ParseJobConfig(*document, violations) : JobConfig();
  if (!violations.empty()) return violations.ToStatus();
  return job;
}

absl::StatusOr<TrainerConfig> ParseTrainerConfig(absl::string_view text) {
  Violations violations;
  TrainerConfig config = ParseTrainerConfig(text, violations);
  if (!violations.empty()) return violations.ToStatus();
  return config;
}

}  // namespace trainyard
