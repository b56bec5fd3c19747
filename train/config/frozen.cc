#include "train/config/frozen.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "models/arch/flops.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "train/config/adapter.h"
#include "train/config/fields.h"
#include "train/config/name_pattern.h"
#include "train/config/patterns.h"

namespace trainyard {
namespace {

using Match = NamePattern::Match;

Match MatchOf(const NamePattern& pattern, const ParameterSpec& spec) {
  if (spec.stacked) return pattern.OfNumbered(spec.name);
  return pattern.Matches(spec.name) ? Match::kAll : Match::kNone;
}

const std::vector<std::string>& PatternsOf(const JobConfig& job) {
  return job.frozen.empty() ? job.trainable : job.frozen;
}

absl::string_view FieldOf(const JobConfig& job) {
  return job.frozen.empty() ? "trainable" : "frozen";
}

// The parameters of a model, by storage.
std::vector<ParameterStorage> StoragesOf(const ModelConfig& model) {
  return DeclareParameters(*CreateModel(model));
}

// Returns whether the patterns match each parameter, in the order of the storages.
std::vector<bool> CheckMatches(const JobConfig& job, const std::vector<ParameterStorage>& storages,
                               Violations& violations) {
  std::vector<const ParameterSpec*> specs;
  std::vector<std::string> names;  // As in checkpoints; for experts, the first one's.
  for (const ParameterStorage& storage : storages) {
    for (const ParameterSpec& spec : storage.parameters) {
      specs.push_back(&spec);
      names.push_back(spec.stacked ? absl::StrReplaceAll(spec.name, {{"*", "0"}}) : spec.name);
    }
  }
  std::vector<bool> matched_by_any(specs.size());
  // Edits are counted only for the first patterns: each pattern is compared with all names, and a
  // spec may have many patterns.
  constexpr size_t kMostCompared = 1'000'000;  // Bytes of patterns x names.
  size_t compared = 0;
  for (size_t i = 0; i < PatternsOf(job).size(); ++i) {
    const std::string& text = PatternsOf(job)[i];
    const std::string field = absl::StrCat(FieldOf(job), "[", i, "]");
    const NamePattern pattern(text);
    bool matched = false;
    const ParameterSpec* divided = nullptr;
    for (size_t j = 0; j < specs.size(); ++j) {
      // The result cannot change any more, unless the pattern divides a stacked parameter.
      if (matched && matched_by_any[j] && !specs[j]->stacked) continue;
      const Match match = MatchOf(pattern, *specs[j]);
      matched |= match == Match::kAll;
      matched_by_any[j] = matched_by_any[j] || match == Match::kAll;
      if (match == Match::kSome) divided = specs[j];
    }
    if (divided != nullptr) {
      violations.Add(field, "all experts of a layer or none, which are one tensor", Quoted(text),
                     Quoted(divided->name));
    } else if (!matched) {
      compared += text.size() * names.size();
      violations.Add(field, "a pattern that matches a parameter", Quoted(text),
                     Quoted(NearestOfNames(text, names, compared <= kMostCompared)));
    }
  }
  return matched_by_any;
}

// `matched`: the result of CheckMatches.
void CheckResult(const JobConfig& job, const std::vector<ParameterStorage>& storages,
                 const std::vector<bool>& matched, Violations& violations) {
  bool trains = false;
  size_t number = 0;
  for (const ParameterStorage& storage : storages) {
    const ParameterSpec& first = storage.parameters.front();
    const bool first_frozen = matched[number] != job.frozen.empty();
    for (const ParameterSpec& spec : storage.parameters) {
      const bool frozen = matched[number++] != job.frozen.empty();
      trains |= !frozen && !spec.state;
      if (!spec.stacked || frozen == first_frozen) continue;
      violations.Add(FieldOf(job),
                     absl::StrCat("both ", first.name, " and ", spec.name,
                                  ", or neither: experts multiply by them at once"),
                     absl::StrCat(first_frozen ? first.name : spec.name, " alone frozen"));
      return;
    }
  }
  if (!trains) {
    violations.Add(FieldOf(job), "parameters that are left to train", "all of them frozen");
  }
}

// One sequence's forward and backward pass on one rank: as the job trains, or as one that trains
// all parameters.
Program RecordTrained(const JobConfig& job, const ModelConfig& model, bool as_the_job) {
  TrainingOptions options = {.record = {.sequence = job.batch.sequence}};
  if (as_the_job) {
    options.record.adapter = AdapterOf(job);
    options.frozen = FrozenBy(job);
  }
  return RecordGradients(*CreateModel(model), options);
}

}  // namespace

Recorder::IsFrozen FrozenBy(const JobConfig& job) {
  if (!Freezes(job)) return nullptr;
  if (job.adapter) return FrozenBeside(*job.adapter->lora);
  const auto patterns = std::make_shared<std::vector<NamePattern>>();
  for (const std::string& text : PatternsOf(job)) patterns->emplace_back(text);
  return [patterns, matched_are_frozen = !job.frozen.empty()](const ParameterSpec& spec) {
    const bool matched = std::any_of(
        patterns->begin(), patterns->end(),
        [&](const NamePattern& pattern) { return MatchOf(pattern, spec) == Match::kAll; });
    return matched == matched_are_frozen;
  };
}

std::vector<ParameterSpec> TrainedParameters(const JobConfig& job, const ModelConfig& model) {
  std::vector<ParameterSpec> trained;
  for (const ParameterStorage& storage : RecordTrained(job, model, /*as_the_job=*/true).storages) {
    if (storage.frozen) continue;
    trained.insert(trained.end(), storage.parameters.begin(), storage.parameters.end());
  }
  return trained;
}

std::vector<PairFlops> TrainedFlopsPerPair(const JobConfig& job, const ModelConfig& model) {
  return FlopsPerPair(RecordTrained(job, model, /*as_the_job=*/true));
}

double TrainedFlopsPerToken(const JobConfig& job, const ModelConfig& model) {
  const double all = FlopsPerToken(model, job.batch.sequence).total();
  if (!Freezes(job)) return all;
  const auto recorded = [&](bool as_the_job) {
    const Program program = RecordTrained(job, model, as_the_job);
    double flops = 0;
    for (List list : {List::kForward, List::kBackwardInput, List::kBackwardWeight}) {
      flops += program.CostOf(list).flops;
    }
    return flops / double(job.batch.sequence);
  };
  return all - (recorded(false) - recorded(true));
}

void ValidateFrozen(const JobConfig& job, const ModelConfig* model, Violations& violations) {
  if (job.frozen.empty() && job.trainable.empty()) return;
  if (!job.frozen.empty() && !job.trainable.empty()) {
    return violations.Add("trainable", "one of frozen and trainable", "both");
  }
  if (!CheckPatterns(PatternsOf(job), FieldOf(job), violations) || model == nullptr) return;
  const std::vector<ParameterStorage> storages = StoragesOf(*model);
  Violations found;
  const std::vector<bool> matched = CheckMatches(job, storages, found);
  if (found.empty()) CheckResult(job, storages, matched, found);
  violations.AddAll(found);
}

}  // namespace trainyard
