#include "train/config/validate.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "models/arch/registry.h"
#include "train/chat/chat_format.h"
#include "train/config/adapter.h"
#include "train/config/advice.h"
#include "train/config/continued_run.h"
#include "train/config/declared_values.h"
#include "train/config/fields.h"
#include "train/config/fp8.h"
#include "train/config/frozen.h"
#include "train/config/generation.h"
#include "train/config/inputs.h"
#include "train/config/nf4.h"
#include "train/config/parse.h"
#include "train/config/precision.h"
#include "train/config/resolve_model.h"
#include "train/config/validate_layout.h"
#include "train/data/source.h"

namespace trainyard {
namespace {

static_assert(DeclaredAt("data.synthetic.document_tokens").whole->most == kMaxSequence);

bool IsLowerAlnum(char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); }

void CheckPath(absl::string_view field, const std::string& path, Violations& violations) {
  if (path.empty()) return violations.Add(field, "a path", "none");
  if (path.size() > kMaxPathLength) {
    return violations.Add(field, absl::StrCat("at most ", kMaxPathLength, " bytes"), path.size());
  }
  if (std::any_of(path.begin(), path.end(), [](char c) { return absl::ascii_iscntrl(c); })) {
    return violations.Add(field, "no control characters", Quoted(path));
  }
  if (path[0] == '~') {
    return violations.Add(field, "an absolute or relative path (~ is not expanded)", Quoted(path));
  }
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    if (part == "..") return violations.Add(field, "a path without \"..\"", Quoted(path));
  }
}

// Returns a legal name close to `name`, or "" if no legal character is left.
std::string NearestJobName(absl::string_view name) {
  std::string nearest;
  for (const char c : absl::AsciiStrToLower(name.substr(0, kMaxNameLength))) {
    nearest += IsLowerAlnum(c) || c == '.' ? c : '-';
  }
  const auto trim = [](char c) { return !IsLowerAlnum(c); };
  while (!nearest.empty() && trim(nearest.back())) nearest.pop_back();
  nearest.erase(nearest.begin(), std::find_if_not(nearest.begin(), nearest.end(), trim));
  return nearest;
}

void CheckName(const std::string& name, Violations& violations) {
  const std::string nearest = NearestJobName(name);
  if (!name.empty() && nearest == name) return;
  violations.Add(
      "name",
      absl::StrCat("[a-z0-9]([-a-z0-9.]*[a-z0-9])?, at most ", kMaxNameLength, " characters"),
      Quoted(name), nearest.empty() ? "" : Quoted(nearest));
}

std::optional<ModelConfig> CheckModel(const JobConfig& job, Violations& violations) {
  Violations found;
  const std::optional<ModelConfig> model = ResolveModel(job.model, found);
  violations.AddAll(found);
  if (!found.empty()) return std::nullopt;
  const std::vector<InputSpec> inputs = CreateModel(*model)->inputs();
  const InputSpec* const tokens = FindInput(inputs, "tokens");
  const SourceFacts data = FactsOf(job.data);
  if (data.byte_tokens && tokens != nullptr && tokens->limit < kByteVocabulary) {
    violations.Add(absl::StrCat(ModelPath(job.model), ".vocab"), "at least 256 for byte tokens",
                   tokens->limit, kByteVocabulary);
  }
  CheckInputs(inputs, job.data, violations);
  return model;
}

void CheckLayout(const JobConfig& job, const std::optional<ModelConfig>& model,
                 Violations& violations) {
  Violations found;
  ValidateLayout(job, model ? &*model : nullptr, found);
  std::vector<FieldViolation> layout = found.list();
  if (model) PutOneChangeFirst(job, *model, layout);
  for (FieldViolation& violation : layout) violations.Add(std::move(violation));
}

void CheckDecay(const JobConfig& job, Violations& violations) {
  const ScheduleConfig& schedule = job.optimizer.schedule;
  constexpr absl::string_view kField = "optimizer.schedule.wsd.decay_steps";
  const int64_t after_warmup = job.steps - schedule.warmup_steps;
  const bool steps_legal = job.steps > 0 && schedule.warmup_steps >= 0;
  if (!steps_legal || schedule.decay_steps < 1 || schedule.decay_steps <= after_warmup) return;
  const std::string wanted = absl::StrCat("at most steps - warmup_steps = ", after_warmup);
  // Without a step behind the warm-up, no number of decay steps is legal.
  after_warmup > 0 ? violations.Add(kField, wanted, schedule.decay_steps, after_warmup)
                   : violations.Add(kField, wanted, schedule.decay_steps);
}

void CheckSchedule(const JobConfig& job, Violations& violations) {
  const ScheduleConfig& schedule = job.optimizer.schedule;
  const std::string shape = absl::StrCat("optimizer.schedule.", Name(schedule.shape));
  if (job.steps > 0 && schedule.warmup_steps > job.steps) {
    violations.Add(absl::StrCat(shape, ".warmup_steps"),
                   absl::StrCat("at most steps = ", job.steps), schedule.warmup_steps, job.steps);
  }
  if (schedule.shape == ScheduleShape::kWsd) CheckDecay(job, violations);
  if (schedule.min_ratio && schedule.shape == ScheduleShape::kConstant) {
    violations.Add(absl::StrCat(shape, ".min_ratio"), "none for a constant rate",
                   *schedule.min_ratio);
  }
}

void CheckOptimizerState(const JobConfig& job, Violations& violations) {
  const OptimizerOptions& options = job.optimizer.options;
  const bool compact = options.state() == OptimizerState::kCompact;
  if (!compact || RowOf(job.precision).formats.CanBeCompact()) return;
  violations.Add(absl::StrCat("optimizer.", options.optimizer().name, ".state"),
                 absl::StrCat("F32 for ", Name(job.precision),
                              ", in which forward and backward read no weights in bf16"),
                 "COMPACT", "F32");
}

void CheckValidation(const JobConfig& job, Violations& violations) {
  if (job.checkpoint && job.checkpoint->keep_best > 0 && !job.validation) {
    violations.Add("checkpoint.keep_best", "0 for a job without validation, which measures no loss",
                   job.checkpoint->keep_best, 0);
  }
  if (!job.validation) return;
  WholeNumbers batches = *DeclaredAt("validation.batches").whole;
  if (!FactsOf(job.data).ends) batches.least = 1;
  violations.Check("validation.batches", job.validation->batches, batches);
  if (FactsOf(job.data).validation_fraction == 0) {
    violations.Add("validation", "a validation_fraction of the data above 0", 0);
  }
}

// Compares spellings only.
bool IsWithin(absl::string_view path, absl::string_view directory) {
  const auto skip = [](absl::string_view part) { return !part.empty() && part != "."; };
  const std::vector<absl::string_view> inner = absl::StrSplit(path, '/', skip);
  const std::vector<absl::string_view> outer = absl::StrSplit(directory, '/', skip);
  return absl::StartsWith(path, "/") == absl::StartsWith(directory, "/") &&
         inner.size() >= outer.size() && std::equal(outer.begin(), outer.end(), inner.begin());
}

void CheckPreference(const JobConfig& job, Violations& violations) {
  if (!job.preference || job.data.source() == nullptr) return;
  const std::optional<ChatFacts> chat = FactsOf(job.data).chat;
  if (!chat) {
    violations.Add("preference", "data.chat, whose lines are pairs of answers",
                   SectionOf(job.data));
  } else if (chat->format == kNoChatFormat) {
    violations.Add("data.chat.format", "a format of chats for pairs of answers", kNoChatFormat);
  }
}

// Checks what the spec says about where the job runs.
void CheckNcclTrace(const JobConfig& job, Violations& violations) {
  constexpr absl::string_view kField = "profile.nccl_trace";
  if (!job.profile->nccl_trace) return;
  if (job.devices == 1) {
    violations.Add(kField, "false for one device, which has no use for NCCL", "true", "false");
  } else if (!RowOf(job.precision).RunsOn(DeviceKind::kCuda)) {
    violations.Add(
        kField,
        absl::StrCat("false for ", Name(job.precision), ", which is for CPU ranks, without NCCL"),
        "true", "false");
  }
}

void CheckProfile(const JobConfig& job, Violations& violations) {
  if (!job.profile) return;
  // A job can claim its checkpoint directory only if nothing else is there.
  if (job.checkpoint && IsWithin(job.profile->directory, job.checkpoint->directory)) {
    violations.Add("profile.directory", "one outside checkpoint.directory",
                   absl::StrCat(Quoted(job.profile->directory), " within ",
                                Quoted(job.checkpoint->directory)));
  }
  violations.Check("profile.start_step", job.profile->start_step,
                   {.most = std::max<int64_t>(1, job.steps)});
  std::set<int64_t> named;
  for (size_t i = 0; i < job.profile->ranks.size(); ++i) {
    const int64_t rank = job.profile->ranks[i];
    const std::string field = absl::StrCat("profile.ranks[", i, "]");
    if (violations.Check(field, rank,
                         {.least = 0, .most = std::max<int64_t>(0, job.devices - 1)}) &&
        !named.insert(rank).second) {
      violations.Add(field, "every rank once", absl::StrCat(rank, " again"));
    }
  }
  CheckNcclTrace(job, violations);
}

void CheckLabels(const JobConfig& job, Violations& violations) {
  if (job.labels.size() > kMaxLabels) {
    violations.Add("labels", absl::StrCat("at most ", kMaxLabels), job.labels.size());
  }
  for (const auto& [key, value] : job.labels) {
    const bool legal_key = !key.empty() && key.size() <= kMaxNameLength &&
                           std::all_of(key.begin(), key.end(), [](char c) {
                             return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
                           });
    if (!legal_key) {
      violations.Add(
          "labels",
          absl::StrCat("keys of 1 to ", kMaxNameLength, " letters, digits, '-', '_', '.'"),
          Quoted(key));
    } else if (value.size() > kMaxLabelLength ||
               std::any_of(value.begin(), value.end(),
                           [](char c) { return absl::ascii_iscntrl(c); })) {
      violations.Add(absl::StrCat("labels.", key),
                     absl::StrCat("at most ", kMaxLabelLength, " bytes on one line"),
                     Quoted(value));
    }
  }
}

// Text that is not a document, or has no job, says nothing about fields.
bool Readable(const Violations& violations, absl::string_view job_path) {
  return std::none_of(
      violations.list().begin(), violations.list().end(),
      [&](const FieldViolation& v) { return v.field == job_path || v.field.empty(); });
}

// Adds what is wrong with a job's values to what was wrong with its text.
void ValidateParsed(const JobConfig& job, Violations& violations) {
  if (!Readable(violations, "")) return;
  Violations found;
  Validate(job, found);
  AddUnreported(found, "", violations);
}

}  // namespace

void Validate(const JobConfig& job, Violations& violations) {
  CheckName(job.name, violations);
  const std::optional<ModelConfig> model = CheckModel(job, violations);
  CheckLayout(job, model, violations);
  ValidateData(job.data, violations);
  for (const auto& [field, path] : PathsOf(job)) CheckPath(field, path, violations);
  CheckSchedule(job, violations);
  CheckValidation(job, violations);
  ValidateGeneration(job, model ? &*model : nullptr, violations);
  CheckPreference(job, violations);
  CheckProfile(job, violations);
  if (job.init_from.empty() && job.init_from_subset) {
    violations.Add("init_from_subset", "false without init_from", "true", "false");
  }
  if (!job.init_from.empty() && !job.model.import_path.empty()) {
    violations.Add("init_from", "none beside model.import, which has all parameters",
                   Quoted(job.init_from));
  }
  ValidateFrozen(job, model ? &*model : nullptr, violations);
  ValidateAdapter(job, model ? &*model : nullptr, violations);
  ValidateContinues(job, violations);
  CheckLabels(job, violations);
  CheckNumbers(job, violations);
  CheckOptimizerState(job, violations);
  ValidateFp8(job, model ? &*model : nullptr, violations);
  ValidateNf4(job, model ? &*model : nullptr, violations);
}

JobConfig ParseAndValidateSpec(const YamlNode& document, Violations& violations) {
  JobConfig job = ParseSpec(document, violations);
  FindMissing(document, violations);
  ValidateParsed(job, violations);
  return job;
}

absl::StatusOr<JobConfig> ParseAndValidateJob(absl::string_view text) {
  Violations violations;
  const std::optional<YamlNode> document = ParseDocument(text, violations);
  JobConfig job = document ? ParseJobConfig(*document, violations) : JobConfig();
  if (document) FindMissing(*document, violations);
  ValidateParsed(job, violations);
  if (!violations.empty()) return violations.ToStatus();
  return job;
}

TrainerConfig ParseAndValidateTrainer(absl::string_view text, Violations& violations) {
  TrainerConfig config = ParseTrainerConfig(text, violations);
  if (Readable(violations, "job")) {
    Violations found;
    if (const auto document = ParseDocument(text, found)) FindMissing(*document, violations);
    Validate(config.job, found);
    if (!config.rank && config.job.devices != 1) {
      found.Add("devices", "1 for a trainer that runs alone", config.job.devices, 1);
    }
    AddUnreported(found, "job.", violations);
    if (config.rank && config.rank->world != config.job.devices) {
      violations.Add("rank.world", absl::StrCat("job.devices = ", config.job.devices),
                     config.rank->world);
    }
  }
  return config;
}

}  // namespace trainyard
