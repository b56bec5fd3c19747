// One function a section; each asks for exactly the fields of the message of the same name in
// job.proto.

#include "train/config/parse.h"

#include "absl/strings/str_cat.h"
#include "train/config/fields.h"
#include "train/config/precision.h"
#include "train/config/read_model.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

// Where the wire says "0 means the default", a 0 leaves the default.
void ReadUnlessZero(Fields& fields, const char* name, int64_t& out) {
  int64_t value = 0;
  fields.Read(name, value);
  if (value != 0) out = value;
}

void ReadParallelism(Fields& fields, ParallelismConfig& out) {
  ReadUnlessZero(fields, "tensor", out.tensor);
  ReadUnlessZero(fields, "pipeline", out.pipeline);
  ReadUnlessZero(fields, "context", out.context);
  ReadUnlessZero(fields, "expert", out.expert);
  std::vector<std::pair<std::string, ExpertSplit>> splits;
  for (const ExpertSplit split :
       {ExpertSplit::kExpert, ExpertSplit::kExpertTensor, ExpertSplit::kExpertTensorContext}) {
    splits.emplace_back(Name(split), split);
  }
  fields.ReadEnum("expert_split", "EXPERT_SPLIT_", splits, out.expert_split);
  fields.ReadEnum<Zero>(
      "zero", "ZERO_",
      {{"NONE", Zero::kNone}, {"OPTIMIZER", Zero::kOptimizer}, {"FULL", Zero::kFull}}, out.zero);
  fields.ReadEnum<Reduction>("reduction", "REDUCTION_",
                             {{"F32", Reduction::kF32}, {"BF16", Reduction::kBF16}}, out.reduction);
  fields.ReadEnum<ContextExchange>(
      "context_exchange", "CONTEXT_EXCHANGE_",
      {{"RING", ContextExchange::kRing}, {"ALL_GATHER", ContextExchange::kAllGather}},
      out.context_exchange);
  std::vector<std::pair<std::string, const ScheduleKind*>> schedules;
  for (const ScheduleKind& kind : AllSchedules()) schedules.emplace_back(kind.name, &kind);
  fields.ReadEnum("schedule", "PIPELINE_SCHEDULE_", schedules, out.schedule);
  // A job need not name the number of chunks if its schedule allows only one number.
  const ScheduleKind& kind = *out.schedule_kind();
  if (kind.sets_chunks()) out.virtual_pipeline = kind.least_chunks;
  ReadUnlessZero(fields, "virtual_pipeline", out.virtual_pipeline);
}

void ReadBatch(Fields& fields, BatchConfig& out) {
  fields.Read("global", out.global);
  fields.Read("micro", out.micro);
  fields.Read("sequence", out.sequence);
}

void ReadData(Fields& fields, DataConfig& out) {
  const std::string source = fields.OneOf({"synthetic", "text", "indexed"});
  fields.Section("synthetic", [](Fields&) {});
  TextData text;
  fields.Section("text", [&](Fields& f) {
    f.Read("path", text.path);
    f.Read("validation_fraction", text.validation_fraction);
    int tokenizer = 0;  // Only one value exists, so nothing is kept of it.
    f.ReadEnum<int>("tokenizer", "TOKENIZER_", {{"BYTES", 0}}, tokenizer);
  });
  IndexedData indexed;
  fields.Section("indexed", [&](Fields& f) {
    f.Read("prefix", indexed.prefix);
    f.Read("validation_fraction", indexed.validation_fraction);
  });
  if (source == "synthetic") out = SyntheticData{};
  if (source == "text") out = text;
  if (source == "indexed") out = indexed;
}

void ReadSchedule(Fields& fields, ScheduleConfig& out) {
  struct Shape {
    const char* name;
    ScheduleShape shape;
  };
  const std::string chosen = fields.OneOf({"cosine", "linear", "constant"});
  for (const auto& [name, shape] :
       {Shape{"cosine", ScheduleShape::kCosine}, Shape{"linear", ScheduleShape::kLinear},
        Shape{"constant", ScheduleShape::kConstant}}) {
    ScheduleConfig read{.shape = shape, .warmup_steps = 0, .min_ratio = std::nullopt};
    fields.Section(name, [&](Fields& f) {
      f.Read("warmup_steps", read.warmup_steps);
      f.Read("min_ratio", read.min_ratio);
    });
    if (chosen == name) out = read;
  }
}

void ReadOptimizer(Fields& fields, OptimizerConfig& out) {
  fields.Section("adamw", [&](Fields& f) {
    f.Read("learning_rate", out.adamw.learning_rate);
    f.Read("beta1", out.adamw.beta1);
    f.Read("beta2", out.adamw.beta2);
    f.Read("epsilon", out.adamw.epsilon);
    f.Read("weight_decay", out.adamw.weight_decay);
  });
  fields.Section("schedule", [&](Fields& f) { ReadSchedule(f, out.schedule); });
  fields.Read("clip_norm", out.clip_norm);
}

void ReadJob(Fields& fields, JobConfig& out) {
  fields.Read("name", out.name);
  fields.Section("model", [&](Fields& f) { ReadModel(f, out.model); });
  std::vector<std::pair<std::string, PrecisionName>> precisions;
  for (const PrecisionRow& row : Precisions()) precisions.emplace_back(row.name, row.precision);
  fields.ReadEnum<PrecisionName>("precision", "PRECISION_", precisions, out.precision);
  fields.Read("deterministic", out.deterministic);
  fields.Section("parallelism", [&](Fields& f) { ReadParallelism(f, out.parallelism); });
  fields.Section("recompute", [&](Fields& f) {
    f.Read("blocks", out.recompute.blocks);
    f.Read("norms_and_activations", out.recompute.norms_and_activations);
  });
  fields.Section("batch", [&](Fields& f) { ReadBatch(f, out.batch); });
  fields.Section("data", [&](Fields& f) { ReadData(f, out.data); });
  fields.Section("optimizer", [&](Fields& f) { ReadOptimizer(f, out.optimizer); });
  fields.Read("steps", out.steps);
  fields.Section("validation", [&](Fields& f) {
    ValidationConfig& validation = out.validation.emplace();
    f.Read("every_steps", validation.every_steps);
    ReadUnlessZero(f, "batches", validation.batches);
  });
  fields.Section("checkpoint", [&](Fields& f) {
    CheckpointConfig& checkpoint = out.checkpoint.emplace();
    f.Read("directory", checkpoint.directory);
    f.Read("every_steps", checkpoint.every_steps);
    ReadUnlessZero(f, "keep", checkpoint.keep);
  });
  fields.Section("profile", [&](Fields& f) {
    ProfileConfig& profile = out.profile.emplace();
    f.Read("directory", profile.directory);
    f.Read("start_step", {1, out.steps > 0 ? out.steps : kMaxSteps}, profile.start_step);
    ReadUnlessZero(f, "steps", profile.steps);
    f.Read("ranks", profile.ranks);
    f.Read("nccl_trace", profile.nccl_trace);
  });
  ReadUnlessZero(fields, "devices", out.devices);
  fields.Read("seed", out.seed);
  fields.Read("priority", out.priority);
  fields.Read("init_from", out.init_from);
  fields.Read("init_from_subset", out.init_from_subset);
  fields.Read("frozen", out.frozen);
  fields.Read("trainable", out.trainable);
  fields.Read("max_restarts", out.max_restarts);
  fields.Read("labels", out.labels);
}

// `compute` is the job's.
void ReadRank(Fields& fields, DType compute, RankConfig& out) {
  fields.Read("job_id", out.job_id);
  fields.Read("epoch", kInt64, out.epoch);
  fields.Read("rank", kUint32, out.rank);
  fields.Read("world", {1, kUint32.max}, out.world);
  fields.ReadEnum<DeviceKind>("device_kind", "DEVICE_KIND_",
                              {{"CPU", DeviceKind::kCpu}, {"CUDA", DeviceKind::kCuda}},
                              out.device_kind);
  fields.Read("device", kUint32, out.device);
  fields.Read("device_uuid", out.device_uuid);
  fields.Read("threads", {1, 4096}, out.threads);
  fields.Read("processors", out.processors);
  fields.Read("interface", out.interface);
  fields.Read("roots", out.roots);
  fields.Read("socket", out.socket);
  fields.Read("exit_report", out.exit_report);
  // A daemon of the version before names recorded checkpoints. The directory knows them.
  std::vector<std::string> recorded;
  fields.Read("checkpoints", recorded);
  out.claimed = !recorded.empty();
  fields.Read("claimed", out.claimed);
  fields.Read("recorded_step", kInt64, out.recorded_step);
  fields.Read("history_after", kInt64, out.history_after);
  fields.Read("recorded_epoch", kInt64, out.recorded_epoch);
  fields.Read("memory_bytes", out.memory_bytes);
  // A daemon of the version before chose the job's dtype by itself.
  fields.Read("peak_flops", out.peak_flops);
  std::map<std::string, double> peaks;
  fields.Read("peak_flops_by_dtype", peaks);
  const auto peak = peaks.find(Name(compute));
  if (peak != peaks.end()) out.peak_flops = peak->second;
  fields.Read("patience_seconds", out.patience_seconds);
}

void CheckRank(const RankConfig& rank, Violations& violations) {
  if (rank.job_id.empty()) violations.Add("rank.job_id", Wanted("the job's id", "none"));
  if (rank.rank >= rank.world) {
    violations.Add("rank.rank",
                   Wanted(absl::StrCat("less than rank.world = ", rank.world), rank.rank));
  }
  if (rank.memory_bytes && *rank.memory_bytes < 1) {
    violations.Add("rank.memory_bytes", Wanted("x > 0", *rank.memory_bytes));
  }
  if (rank.peak_flops && !(*rank.peak_flops > 0)) {
    violations.Add("rank.peak_flops", Wanted("x > 0", *rank.peak_flops));
  }
  if (rank.patience_seconds && !(*rank.patience_seconds > 0)) {
    violations.Add("rank.patience_seconds",
                   absl::StrCat("wanted > 0, found ", *rank.patience_seconds));
  }
  for (size_t i = 0; i < rank.roots.size(); ++i) {
    if (rank.roots[i].empty() || rank.roots[i][0] != '/') {
      violations.Add(absl::StrCat("rank.roots[", i, "]"),
                     Wanted("an absolute path", Quoted(rank.roots[i])));
    }
  }
}

// A job spec by itself, which is what a person has at hand, as the whole that it stands for.
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
  violations.Add("", document.status().message());
  return std::nullopt;
}

JobConfig ParseJobConfig(const YamlNode& document, Violations& violations) {
  JobConfig job;
  Fields fields(document, "", violations);
  ReadJob(fields, job);
  return job;
}

TrainerConfig ParseTrainerConfig(absl::string_view text, Violations& violations) {
  TrainerConfig config;
  std::optional<YamlNode> document = ParseDocument(text, violations);
  if (!document) return config;
  const YamlNode whole = Whole(*std::move(document));
  Fields fields(whole, "", violations);
  int64_t version = 0;
  fields.Read("version", kUint32, version);
  if (version != kTrainerConfigVersion) {
    violations.Add(
        "version",
        Wanted(absl::StrCat(kTrainerConfigVersion, ", which this trainer reads"), version));
  }
  if (!fields.Section("job", [&](Fields& f) { ReadJob(f, config.job); })) {
    violations.Add("job", Wanted("the job to train", "none"));
  }
  const DType compute = RowOf(config.job.precision).dtypes.compute;
  if (fields.Section("rank", [&](Fields& f) { ReadRank(f, compute, config.rank.emplace()); })) {
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
