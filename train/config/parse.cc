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

// Visits the table of common/rank_config.h and reads.
struct RankReader {
  Fields& fields;
  void operator()(const char* name, auto& value) { fields.Field(name, value); }
  void Whole(const char* name, int64_t& value) { fields.Field(name, kInt64, value); }
  void Named(const char* name, DeviceKind& value, std::initializer_list<DeviceKind> all) {
    std::vector<std::pair<std::string, DeviceKind>> values;
    for (const DeviceKind one : all) values.emplace_back(Name(one), one);
    fields.EnumField(name, "DEVICE_KIND_", values, value);
  }
};

void CheckRank(const RankConfig& rank, Violations& violations) {
  if (rank.job_id.empty()) violations.Add("rank.job_id", "the job's id", "none");
  violations.Check("rank.world", rank.world, {.most = kUint32.most});
  violations.Check("rank.device", rank.device, kUint32);
  violations.Check("rank.threads", rank.threads, {.most = 4096});
  if (rank.rank >= rank.world) {
    violations.Add("rank.rank", absl::StrCat("less than rank.world = ", rank.world), rank.rank);
  }
  if (rank.memory_bytes) violations.Check("rank.memory_bytes", *rank.memory_bytes, {});
  if (rank.host_memory_bytes) {
    violations.Check("rank.host_memory_bytes", *rank.host_memory_bytes, {});
  }
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
  const auto read = [](Fields& section, RankConfig& rank) {
    RankReader reader{section};
    VisitFields(reader, rank);
  };
  fields.OptionalSection("rank", config.rank, read);
  if (!config.rank) return config;
  CheckRank(*config.rank, violations);
  const DType multiplied = RowOf(config.job.precision).formats.multiplied();
  const std::map<std::string, double>& peaks = config.rank->peak_flops_by_dtype;
  const auto peak = peaks.find(IsNarrow(multiplied) ? "fp8" : Name(multiplied));
  if (peak != peaks.end()) config.rank->peak_flops = peak->second;
  return config;
}

absl::StatusOr<JobConfig> ParseJobConfig(absl::string_view text) {
  Violations violations;
  const std::optional<YamlNode> document = ParseDocument(text, violations);
  JobConfig job = document ? ParseJobConfig(*document, violations) : JobConfig();
  if (!violations.empty()) return violations.ToStatus();
  return job;
}

}  // namespace trainyard
