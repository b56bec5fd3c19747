#include "train/config/continued_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/epochs.h"
#include "common/json.h"
#include "models/arch/fields.h"
#include "models/hf/field_json.h"
#include "models/layers/moe_config.h"
#include "train/config/declared_values.h"
#include "train/config/precision.h"
#include "train/config/resolve_model.h"
#include "train/config/resolved_job.h"

namespace trainyard {
namespace {

using OrderedJson = nlohmann::ordered_json;

static_assert(DeclaredAt("continues.epoch").whole->most == kMostEpoch);

constexpr absl::string_view kArchitecture = "model.architecture";
constexpr char kBalanced[] = "batch.micro x data ranks";

// Whether `path` is the field or a section that holds it.
bool Holds(absl::string_view path, absl::string_view field) {
  return absl::StartsWith(field, path) &&
         (field.size() == path.size() || field[path.size()] == '.' || field[path.size()] == '[');
}

// What is declared of the field, or of the innermost section around it that says something.
ChangeEffect EffectOf(absl::string_view field) {
  while (true) {
    const DeclaredField* const declared = DeclaredOf(field);
    if (declared != nullptr && declared->change != ChangeEffect::kOfSection) {
      return declared->change;
    }
    const size_t end = field.find_last_of(".[");
    if (end == field.npos) return ChangeEffect::kTraining;
    field = field.substr(0, end);
  }
}

bool SameKeys(const OrderedJson& a, const OrderedJson& b) {
  return a.size() == b.size() &&
         std::all_of(a.items().begin(), a.items().end(),
                     [&](const auto& item) { return b.contains(item.key()); });
}

// Adds the innermost fields that differ. Where the two have other fields, their section differs.
void Compare(const std::string& path, const OrderedJson& before, const OrderedJson& now,
             std::vector<RunChange>& changes) {
  if (before == now) return;
  if (before.is_object() && now.is_object() && SameKeys(before, now)) {
    for (const auto& [key, value] : before.items()) {
      Compare(absl::StrCat(path, path.empty() ? "" : ".", key), value, now[key], changes);
    }
  } else if (before.is_array() && now.is_array() && before.size() == now.size()) {
    for (size_t i = 0; i < before.size(); ++i) {
      Compare(absl::StrCat(path, "[", i, "]"), before[i], now[i], changes);
    }
  } else if (const ChangeEffect effect = EffectOf(path); effect != ChangeEffect::kNothing) {
    changes.push_back({path, JsonText(before), JsonText(now), effect});
  }
}

// `field` is a field of the model, or a group of fields.
bool MayDifferInRun(const ModelConfig& model, absl::string_view field) {
  bool known = false;
  for (const Field& row : FieldsOf(model)) {
    if (!Holds(field, row.rule.name)) continue;
    known = true;
    if (row.rule.may_differ < MayDiffer::kAtStart) return false;
  }
  return known;
}

// Whether the loss for the load of experts takes its means over a micro-batch of all data ranks.
bool BalancesMicroBatches(const ModelConfig& model) {
  const std::optional<FieldValue> loss = FindValue(model, "moe.aux_loss");
  const std::optional<FieldValue> scope = FindValue(model, "moe.aux_loss_scope");
  return loss && !IsZero(*loss) && scope != FieldValue(std::string(Name(BalanceScope::kSequence)));
}

int64_t BalancedSequences(const JobConfig& job) { return job.batch.micro * DataParallel(job); }

bool HasLength(const JobConfig& job) {
  return job.optimizer.schedule.shape != ScheduleShape::kConstant;
}

std::vector<std::string> Allowable() {
  std::vector<std::string> paths;
  for (const DeclaredField& field : kDeclaredFields) {
    if (field.change == ChangeEffect::kSamples) paths.emplace_back(field.path);
  }
  return paths;
}

}  // namespace

std::vector<RunChange> ChangesOfRun(const JobConfig& before, const JobConfig& now) {
  std::vector<RunChange> changes;
  Compare("", ParseJson<OrderedJson>(ResolvedJobText(before)),
          ParseJson<OrderedJson>(ResolvedJobText(now)), changes);
  const absl::StatusOr<ModelConfig> model = ResolveModel(now.model);
  CHECK(model.ok()) << model.status();
  const bool other_state =
      RowOf(before.precision).formats.master != RowOf(now.precision).formats.master;
  for (RunChange& change : changes) {
    absl::string_view name = change.field;
    if (absl::ConsumePrefix(&name, kArchitecture)) {
      absl::ConsumePrefix(&name, ".");
      if (!MayDifferInRun(*model, name)) change.effect = ChangeEffect::kState;
    }
    if (change.field == "precision" && other_state) change.effect = ChangeEffect::kState;
    // Options are compared one by one. Only another optimizer makes the whole section differ.
    if (change.field == "optimizer") {
      change = {.field = change.field,
                .before = before.optimizer.options.optimizer().name,
                .now = now.optimizer.options.optimizer().name,
                .effect = ChangeEffect::kState};
    }
  }
  if (BalancesMicroBatches(*model) && BalancedSequences(before) != BalancedSequences(now)) {
    changes.push_back({.field = kBalanced,
                       .before = absl::StrCat(BalancedSequences(before)),
                       .now = absl::StrCat(BalancedSequences(now))});
  }
  if (!HasLength(now)) {  // Its schedule does not fall over the steps.
    std::erase_if(changes, [](const RunChange& change) { return change.field == "steps"; });
  }
  std::erase_if(changes, [](const RunChange& change) {
    return change.effect == ChangeEffect::kStart && change.now == R"("")";
  });
  return changes;
}

bool NamesData(const RunChange& change) {
  const DeclaredField* const declared = DeclaredOf(change.field);
  return Holds("data", change.field) && declared != nullptr && declared->use != PathUse::kNone;
}

std::string Described(const RunChange& change) {
  std::string text =
      absl::StrCat(change.field, ": ", change.before, " before, ", change.now, " now");
  if (change.field == "steps") {
    absl::StrAppend(&text, "; optimizer.schedule falls over all steps, so the learning rate of ",
                    "each step to come is another one");
  }
  if (change.effect == ChangeEffect::kStart) {
    absl::StrAppend(&text, "; the run goes on with its own parameters, not with those");
  }
  if (change.field == kBalanced) {
    absl::StrAppend(&text, "; moe.aux_loss balances so many sequences together");
  }
  return text;
}

bool IsAllowed(const std::vector<std::string>& allow, absl::string_view field) {
  return std::any_of(allow.begin(), allow.end(),
                     [&](const std::string& path) { return Holds(path, field); });
}

// Why a field that the run's state follows from cannot have another value, and what to do instead.
const char* WhyStateDiffers(absl::string_view field) {
  if (Holds("adapter", field)) {
    return "the run's adapter is of no other one. trainyard export --merge writes a model with "
           "which a new job can begin: model.import";
  }
  return "the run's parameters and optimizer state are of no other one. A new job can begin with "
         "the parameters: init_from";
}

absl::Status CheckChanges(const std::vector<RunChange>& changes,
                          const std::vector<std::string>& allow) {
  Violations refused;
  for (const RunChange& change : changes) {
    FieldViolation violation = {
        .field = change.field,
        .wanted = absl::StrCat(change.before, ", as in the run that the job continues"),
        .found = change.now,
        .note = WhyStateDiffers(change.field)};
    if (change.effect == ChangeEffect::kSamples && !IsAllowed(allow, change.field)) {
      violation.note = absl::StrCat(
          "samples would be repeated or skipped; to go on nevertheless: --allow ", change.field);
    } else if (change.effect != ChangeEffect::kState) {
      continue;
    }
    refused.Add(std::move(violation));
  }
  return refused.ToStatus();
}

absl::Status CheckLonger(int64_t done, const JobConfig& now) {
  if (now.steps > done) return absl::OkStatus();
  return WrongField(
      "steps", absl::StrCat("more than ", done, ", the steps of the run that the job continues"),
      now.steps, done + 1);
}

void ValidateContinues(const JobConfig& job, Violations& violations) {
  if (!job.continues) return;
  if (!job.checkpoint) {
    violations.Add("continues", "a checkpoint.directory, whose run goes on", "none");
  }
  if (job.continues->job.empty()) {
    violations.Add("continues.job", "the job that owns checkpoint.directory", "none");
  }
  const std::vector<std::string> known = Allowable();
  for (const std::string& field : job.continues->allow) {
    const bool allows = std::any_of(known.begin(), known.end(),
                                    [&](const std::string& path) { return Holds(path, field); });
    if (allows) continue;
    violations.Add("continues.allow",
                   absl::StrCat(absl::StrJoin(known, ", "), " or a field below one of them"),
                   absl::StrCat("'", field, "'"), NearestName(field, known));
  }
}

}  // namespace trainyard
