// Declares each field of a job once. The reader of specs (Fields) and the writer of resolved jobs
// (FieldWriter) both use these functions. Each section has one function, with exactly the fields of
// the message of the same name in job_spec.proto. Each visitor has its own VisitModel.

#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/declared.h"
#include "common/job_axes.h"
#include "train/config/generation.h"
#include "train/config/job_config.h"
#include "train/config/precision.h"
#include "train/data/source.h"

namespace trainyard {

template <typename Visitor>
void VisitParallelism(Visitor& fields, ParallelismConfig& out) {
  if (!fields.resolved()) out.virtual_pipeline = 0;  // Not said.
  ForEachAxis(out, [&](const JobAxis& axis, int64_t& size) { fields.Field(axis.name, size); });
  std::vector<std::pair<std::string, ExpertSplit>> splits;
  for (const ExpertSplit split :
       {ExpertSplit::kExpert, ExpertSplit::kExpertTensor, ExpertSplit::kExpertTensorContext}) {
    splits.emplace_back(Name(split), split);
  }
  fields.EnumField("expert_split", "EXPERT_SPLIT_", splits, out.expert_split);
  fields.template EnumField<Zero>(
      "zero", "ZERO_",
      {{"NONE", Zero::kNone}, {"OPTIMIZER", Zero::kOptimizer}, {"FULL", Zero::kFull}}, out.zero);
  fields.template EnumField<Reduction>("reduction", "REDUCTION_",
                                       {{"F32", Reduction::kF32}, {"BF16", Reduction::kBF16}},
                                       out.reduction);
  fields.template EnumField<ContextExchange>(
      "context_exchange", "CONTEXT_EXCHANGE_",
      {{"RING", ContextExchange::kRing}, {"ALL_GATHER", ContextExchange::kAllGather}},
      out.context_exchange);
  std::vector<std::pair<std::string, const ScheduleKind*>> schedules;
  for (const ScheduleKind& kind : AllSchedules()) schedules.emplace_back(kind.name, &kind);
  fields.EnumField("schedule", "PIPELINE_SCHEDULE_", schedules, out.schedule, /*open=*/true);
  // A job need not name the number of chunks if its schedule allows only one number.
  if (out.virtual_pipeline == 0 && !fields.resolved()) {
    const ScheduleKind& kind = *out.schedule_kind();
    out.virtual_pipeline = kind.sets_chunks() ? kind.least_chunks : 1;
  }
}

template <typename Visitor>
void VisitBatch(Visitor& fields, BatchConfig& out) {
  fields.Field("global", out.global);
  fields.Field("micro", out.micro);
  fields.Field("sequence", out.sequence);
}

template <typename Visitor>
void VisitSourceField(Visitor& fields, const SourceRule& rule, const SourceField& field) {
  if (const auto* const choice = std::get_if<Choice>(&field)) {
    std::vector<std::pair<std::string, size_t>> values;
    for (size_t i = 0; i < choice->names.size(); ++i) values.emplace_back(choice->names[i], i);
    size_t index = choice->index;
    const std::string prefix = absl::StrCat(absl::AsciiStrToUpper(rule.name), "_");
    fields.template EnumField<size_t>(rule.name, prefix, values, index);
    if (choice->set) choice->set(index);
  } else if (const auto* const list = std::get_if<SectionList>(&field)) {
    std::vector<char> sections(list->size);  // A reader adds to them, and a writer visits them.
    size_t next = 0;
    fields.List(rule.name, sections, [&](Visitor& one, char&) {
      if (next >= list->size) list->add();
      list->visit(next++, [&](const SourceRule& inner, const SourceField& of_section) {
        VisitSourceField(one, inner, of_section);
      });
    });
  } else if (auto* const* const text = std::get_if<std::string*>(&field)) {
    fields.Field(rule.name, **text);
  } else if (auto* const* const number = std::get_if<double*>(&field)) {
    fields.Field(rule.name, **number);
  } else if (auto* const* const integer = std::get_if<int64_t*>(&field)) {
    fields.Field(rule.name, **integer);
  } else {
    fields.Field(rule.name, *std::get<bool*>(field));
  }
}

template <typename Visitor>
void VisitData(Visitor& fields, DataConfig& out) {
  std::vector<std::string> names;
  for (const DataSource* const source : DataSources()) names.push_back(source->name);
  const DataConfig before = out;
  const std::string chosen =
      fields.OneOf(names, before.source() == nullptr ? "" : before.source()->name);
  for (const DataSource* const source : DataSources()) {
    DataConfig read = before.source() == source ? before : source->make();
    fields.Alternative(source->name, chosen, [&](Visitor& f) {
      source->visit(read, [&](const SourceRule& rule, const SourceField& field) {
        VisitSourceField(f, rule, field);
      });
    });
    if (chosen == source->name) out = read;
  }
}

template <typename Visitor>
void VisitValidation(Visitor& fields, const DataConfig& data, ValidationConfig& out) {
  fields.Field("every_steps", out.every_steps);
  fields.Field("batches", out.batches);
  const bool given = fields.resolved() || out.batches != 0;
  if (!given && !FactsOf(data).ends) out.batches = 1;
  fields.OptionalSection("generate", out.generate, [](Visitor& f, GenerationConfig& generate) {
    f.Field("prompts", generate.prompts);
    f.Field("tokens", generate.tokens);
    f.Field("temperature", generate.temperature);
    f.Field("tokenizer", generate.tokenizer);
  });
}

template <typename Visitor>
void VisitSchedule(Visitor& fields, ScheduleConfig& out) {
  constexpr ScheduleShape kShapes[] = {ScheduleShape::kCosine, ScheduleShape::kLinear,
                                       ScheduleShape::kConstant, ScheduleShape::kWsd};
  std::vector<std::string> names;
  for (const ScheduleShape shape : kShapes) names.push_back(Name(shape));
  const ScheduleConfig before = out;
  const std::string chosen = fields.OneOf(names, Name(out.shape));
  for (const ScheduleShape shape : kShapes) {
    ScheduleConfig read = before;
    read.shape = shape;
    fields.Alternative(Name(shape), chosen, [&](Visitor& f) {
      f.Field("warmup_steps", read.warmup_steps);
      f.Field("min_ratio", read.min_ratio);
      if (shape != ScheduleShape::kWsd) return;
      f.Field("decay_steps", read.decay_steps);
      f.template EnumField<DecayStyle>("decay_style", "DECAY_STYLE_",
                                       {{"LINEAR", DecayStyle::kLinear},
                                        {"COSINE", DecayStyle::kCosine},
                                        {"EXPONENTIAL", DecayStyle::kExponential},
                                        {"MINUS_SQRT", DecayStyle::kMinusSqrt}},
                                       read.decay_style);
    });
    if (chosen == Name(shape)) out = read;
  }
}

template <typename Visitor>
void VisitChoice(Visitor& fields, const OptimizerOption& option, double& out) {
  std::vector<std::pair<std::string, double>> values;
  for (const char* const name : option.choices) values.emplace_back(name, double(values.size()));
  const std::string prefix = absl::StrCat("OPTIMIZER_", absl::AsciiStrToUpper(option.name), "_");
  fields.template EnumField<double>(option.name, prefix, values, out);
}

template <typename Visitor>
void VisitOptimizer(Visitor& fields, OptimizerConfig& out) {
  std::vector<std::string> names;
  for (const Optimizer* const optimizer : Optimizers()) names.push_back(optimizer->name);
  const OptimizerOptions before = out.options;
  const std::string chosen = fields.OneOf(names, before.optimizer().name);
  for (const Optimizer* const optimizer : Optimizers()) {
    OptimizerOptions read =
        optimizer == &before.optimizer() ? before : OptimizerOptions(*optimizer);
    fields.Alternative(optimizer->name, chosen, [&](Visitor& f) {
      for (const OptimizerOption& option : optimizer->options) {
        if (option.choices.empty()) {
          f.Field(option.name, read[option.name]);
        } else {
          VisitChoice(f, option, read[option.name]);
        }
      }
    });
    if (chosen == optimizer->name) out.options = read;
  }
  fields.Section("schedule", [&](Visitor& f) { VisitSchedule(f, out.schedule); });
  fields.Field("clip_norm", out.clip_norm);
  fields.Field("offload", out.offload);
}

template <typename Visitor>
void VisitAdapter(Visitor& fields, AdapterConfig& out) {
  fields.OptionalSection("lora", out.lora, [](Visitor& f, LoraConfig& lora) {
    f.Field("rank", lora.rank);
    f.Field("alpha", lora.alpha);
    f.Field("targets", lora.targets);
    f.Field("rslora", lora.rslora);
    f.Field("dora", lora.dora);
    f.template EnumField<LoraBase>(
        "base", "LORA_BASE_", {{"AS_COMPUTED", LoraBase::kAsComputed}, {"NF4", LoraBase::kNf4}},
        lora.base);
    f.Field("dropout", lora.dropout);
    f.Field("modules_to_save", lora.modules_to_save);
  });
}

template <typename Visitor>
void VisitJob(Visitor& fields, JobConfig& out) {
  fields.Field("name", out.name);
  fields.Section("model", [&](Visitor& f) { VisitModel(f, out.model); });
  std::vector<std::pair<std::string, PrecisionName>> precisions;
  for (const PrecisionRow& row : Precisions()) precisions.emplace_back(row.name, row.precision);
  fields.template EnumField<PrecisionName>("precision", "PRECISION_", precisions, out.precision);
  fields.OptionalSection("fp8", out.fp8, [](Visitor& f, Fp8Config& fp8) {
    f.Field("first_layers_in_bf16", fp8.first_layers_in_bf16);
    f.Field("last_layers_in_bf16", fp8.last_layers_in_bf16);
  });
  fields.Field("deterministic", out.deterministic);
  fields.Section("parallelism", [&](Visitor& f) { VisitParallelism(f, out.parallelism); });
  fields.Section("recompute", [&](Visitor& f) {
    f.Field("blocks", out.recompute.blocks);
    f.Field("norms_and_activations", out.recompute.norms_and_activations);
  });
  fields.Section("batch", [&](Visitor& f) { VisitBatch(f, out.batch); });
  fields.Section("data", [&](Visitor& f) { VisitData(f, out.data); });
  if (!fields.resolved()) TakeTokenizerOfImport(out);
  fields.Section("optimizer", [&](Visitor& f) { VisitOptimizer(f, out.optimizer); });
  fields.Field("steps", out.steps);
  fields.OptionalSection("validation", out.validation, [&](Visitor& f, ValidationConfig& read) {
    VisitValidation(f, out.data, read);
  });
  if (!fields.resolved()) TakeTokenizerForPrompts(out);
  fields.OptionalSection("checkpoint", out.checkpoint,
                         [&](Visitor& f, CheckpointConfig& checkpoint) {
                           f.Field("directory", checkpoint.directory);
                           f.Field("every_steps", checkpoint.every_steps);
                           f.Field("keep", checkpoint.keep);
                           f.Field("keep_best", checkpoint.keep_best);
                         });
  fields.OptionalSection("profile", out.profile, [&](Visitor& f, ProfileConfig& profile) {
    f.Field("directory", profile.directory);
    constexpr int64_t kMostSteps = DeclaredAt("steps").whole->most;
    f.Field("start_step", {.most = out.steps > 0 ? out.steps : kMostSteps}, profile.start_step);
    f.Field("steps", profile.steps);
    f.Field("ranks", profile.ranks);
    f.Field("nccl_trace", profile.nccl_trace);
  });
  fields.Field("devices", out.devices);
  fields.Field("seed", out.seed);
  fields.Field("priority", out.priority);
  fields.Field("init_from", out.init_from);
  fields.Field("init_from_subset", out.init_from_subset);
  fields.Field("frozen", out.frozen);
  fields.Field("trainable", out.trainable);
  fields.OptionalSection("adapter", out.adapter,
                         [](Visitor& f, AdapterConfig& adapter) { VisitAdapter(f, adapter); });
  fields.OptionalSection("preference", out.preference,
                         [](Visitor& f, PreferenceConfig& preference) {
                           f.template EnumField<PreferenceMethod>(
                               "method", "PREFERENCE_METHOD_",
                               {{"DPO", PreferenceMethod::kDpo}, {"ORPO", PreferenceMethod::kOrpo}},
                               preference.method);
                           f.Field("beta", preference.beta);
                         });
  fields.OptionalSection("continues", out.continues, [&](Visitor& f, ContinuesConfig& continues) {
    f.Field("job", continues.job);
    f.Field("epoch", *DeclaredAt("continues.epoch").whole, continues.epoch);
    f.Field("allow", continues.allow);
  });
  fields.Field("max_restarts", out.max_restarts);
  fields.Field("labels", out.labels);
}

}  // namespace trainyard
