#include "train/config/validate_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/declared.h"
#include "common/job_axes.h"
#include "train/config/fields.h"
#include "train/config/validate.h"
#include "train/pipeline/divide.h"

namespace trainyard {
namespace {

// Returns the legal number in [1, most] that is closest to `found`. 1 must be legal.
template <typename Legal>
int64_t Nearest(int64_t found, int64_t most, Legal&& legal) {
  found = std::clamp<int64_t>(found, 1, most);
  for (int64_t distance = 0; distance < most; ++distance) {
    if (found - distance >= 1 && legal(found - distance)) return found - distance;
    if (found + distance <= most && legal(found + distance)) return found + distance;
  }
  return 1;
}

// Whether the devices can be divided into data ranks of `ranks` devices each, and the batch over
// the data ranks.
bool DividesOver(const JobConfig& job, int64_t ranks) {
  return job.devices % ranks == 0 &&
         job.batch.global % (job.batch.micro * (job.devices / ranks)) == 0;
}

// Checks that the tensor ranks divide the sizes of the model that must be divided.
class TensorRule {
 public:
  // `rows`: those of a micro-batch on a rank. Absent: the ranks divide any number of rows.
  TensorRule(const ModelConfig& model, std::optional<int64_t> rows) : rows_(rows) {
    for (const Field& field : FieldsOf(model)) {
      if (field.rule.over_tensor == OverTensor::kWhole) continue;
      if (field.value == FieldValue(int64_t{0})) continue;  // Of a part that the model lacks.
      const absl::string_view name = field.rule.name;
      const Size size{.name = std::string(name.substr(name.find('.') + 1)),
                      .value = std::get<int64_t>(field.value),
                      .padded_by = field.rule.padded_by,
                      .padded_to = field.rule.padded_to};
      (field.rule.over_tensor == OverTensor::kDivided ? divided_ : replicated_).push_back(size);
    }
  }

  bool Legal(int64_t tensor) const {
    const auto divides = [&](const Size& size) { return size.Divides(tensor); };
    return rows_.value_or(0) % tensor == 0 &&
           std::all_of(divided_.begin(), divided_.end(), divides) &&
           std::all_of(replicated_.begin(), replicated_.end(),
                       [&](const Size& size) { return divides(size) || tensor % size.value == 0; });
  }

  // A larger number of ranks is not legal.
  int64_t most() const {
    int64_t most = rows_.value_or(kMaxDevices);
    for (const Size& size : divided_) most = std::min(most, size.padded());
    return most;
  }

  // What is wanted of a number of ranks that is not legal.
  std::string Text(int64_t tensor) const {
    const auto name = [&](std::string* out, const Size& size) {
      absl::StrAppend(out, size.name, " = ", size.value);
      if (size.padded_to > 1) absl::StrAppend(out, " rounded up to ", size.padded());
      if (size.padded_by == nullptr || size.Divides(tensor)) return;
      if (const auto multiple = size.MultipleFor(tensor)) {
        absl::StrAppend(out, " (or ", size.padded_by, " = ", *multiple, ", found ", size.padded_to,
                        ")");
      }
    };
    const std::string rows =
        rows_ ? absl::StrCat(" and the ", *rows_, " tokens of a micro-batch on a rank") : "";
    return absl::StrCat("a number that divides ", absl::StrJoin(divided_, ", ", name), rows,
                        replicated_.empty()
                            ? ""
                            : absl::StrCat(", and divides ", absl::StrJoin(replicated_, ", ", name),
                                           " or is a multiple of it"));
  }

  // Returns the model with sizes padded so that so many ranks divide them, where that is possible.
  static ModelConfig Padded(ModelConfig model, int64_t tensor) {
    for (const Size& size : TensorRule(model, std::nullopt).divided_) {
      if (size.padded_by == nullptr || size.Divides(tensor)) continue;
      if (const auto multiple = size.MultipleFor(tensor)) {
        SetField(model, size.padded_by, *multiple);
      }
    }
    return model;
  }

 private:
  struct Size {
    std::string name;
    int64_t value;
    const char* padded_by;  // As in FieldRule, and the next.
    int64_t padded_to;

    int64_t padded() const { return (value + padded_to - 1) / padded_to * padded_to; }
    // No rank may have padding alone.
    bool Divides(int64_t tensor) const {
      const int64_t each = padded() / tensor;
      return padded() % tensor == 0 && (each * (tensor - 1) < value || value == 0);
    }
    // A value of padded_to with which the ranks divide the size, if there is one: preferably a
    // multiple of the present one.
    std::optional<int64_t> MultipleFor(int64_t tensor) const {
      for (const int64_t multiple : {std::lcm(padded_to, tensor), tensor}) {
        const Size other{
            .name = name, .value = value, .padded_by = padded_by, .padded_to = multiple};
        if (other.Divides(tensor)) return multiple;
      }
      return std::nullopt;
    }
  };
  std::optional<int64_t> rows_;
  std::vector<Size> divided_, replicated_;
};

void CheckTensor(const JobConfig& job, const ModelConfig& model, Violations& violations) {
  const TensorRule rule(model, job.batch.micro * job.batch.sequence / job.parallelism.context);
  const int64_t tensor = job.parallelism.tensor;
  if (rule.Legal(tensor)) return;
  // Prefer a size that needs no other device count or batch.
  const int64_t others = job.parallelism.pipeline * job.parallelism.context;
  const auto legal = [&](int64_t t) { return rule.Legal(t); };
  const auto fits = [&](int64_t t) { return legal(t) && DividesOver(job, t * others); };
  const int64_t nearest = Nearest(tensor, rule.most(), fits);
  violations.Add("parallelism.tensor", rule.Text(tensor), tensor,
                 fits(nearest) ? nearest : Nearest(tensor, rule.most(), legal));
}

// Checks that the experts divide over their ranks.
void CheckExperts(const JobConfig& job, const ModelConfig& model, Violations& violations) {
  const ParallelismConfig& p = job.parallelism;
  const std::optional<ExpertFacts> facts = FactsOf(model).experts;
  if (!facts) {
    if (p.expert == 1) return;
    return violations.Add("parallelism.expert",
                          absl::StrCat("1, since family ", model.family(), " has no experts"),
                          p.expert, 1);
  }
  const int64_t experts = facts->experts, data = DataParallel(job);
  const int64_t others = (p.expert_split == ExpertSplit::kExpert ? 1 : p.tensor) *
                         (p.expert_split == ExpertSplit::kExpertTensorContext ? p.context : 1);
  const auto legal = [&](int64_t e) { return data % e == 0 && experts % (e * others) == 0; };
  if (legal(p.expert)) return;
  const std::string wanted =
      absl::StrCat("a number of ranks (expert x ", others, " by expert_split ",
                   Name(p.expert_split), ") that divides experts = ", experts);
  if (legal(1)) {
    violations.Add("parallelism.expert", wanted, p.expert, Nearest(p.expert, data, legal));
  } else {
    violations.Add("parallelism.expert_split", wanted, p.expert * others,
                   Name(ExpertSplit::kExpert));
  }
}

// Checks that a rank can number its tokens' choices of experts. Tokens are divided over the tensor
// ranks, too, wherever the experts are.
void CheckExpertSlots(const JobConfig& job, const ModelConfig& model, Violations& violations) {
  const std::optional<ExpertFacts> experts = FactsOf(model).experts;
  if (!experts) return;
  const BatchConfig& batch = job.batch;
  const int64_t tensor = job.parallelism.tensor, context = job.parallelism.context;
  const auto rows = [&](int64_t micro, int64_t sequence) { return micro * sequence / context; };
  const auto slots = [&](int64_t micro, int64_t sequence) {
    return rows(micro, sequence) / tensor * experts->top_k;
  };
  const int64_t found = slots(batch.micro, batch.sequence);
  if (found <= kMaxExpertSlots) return;
  const auto fits = [&](int64_t micro, int64_t sequence) {
    return rows(micro, sequence) % tensor == 0 && slots(micro, sequence) <= kMaxExpertSlots;
  };
  const std::string wanted =
      absl::StrCat("at most ", kMaxExpertSlots,
                   " choices of experts on a rank at once, micro x sequence / (context x tensor) x "
                   "top_k = ",
                   batch.micro, " x ", batch.sequence, " / (", context, " x ", tensor, ") x ",
                   experts->top_k, " = ", found);
  const auto micro_fits = [&](int64_t micro) {
    return fits(micro, batch.sequence) && batch.global % (micro * DataParallel(job)) == 0;
  };
  const int64_t micro = Nearest(batch.micro, batch.micro, micro_fits);
  if (micro_fits(micro)) {
    return violations.Add("batch.micro", wanted, batch.micro, micro);
  }
  const auto sequence_fits = [&](int64_t sequence) {
    return fits(batch.micro, sequence) && (context == 1 || sequence % (2 * context) == 0);
  };
  violations.Add("batch.sequence", wanted, batch.sequence,
                 Nearest(batch.sequence, batch.sequence, sequence_fits));
}

// Checks the parts of the pipeline, and that its schedule can run.
void CheckPipeline(const JobConfig& job, int64_t layers, Violations& violations) {
  const ParallelismConfig& p = job.parallelism;
  const ScheduleKind& kind = *p.schedule_kind();
  const int64_t blocks = layers + 2, least = kind.least_chunks;
  const int64_t chunks = std::max(p.virtual_pipeline, least);
  if (p.pipeline * chunks > blocks) {
    const bool stages = p.pipeline * least > blocks;
    violations.Add(
        stages ? "parallelism.pipeline" : "parallelism.virtual_pipeline",
        absl::StrCat("at most ", blocks, " parts of ", layers, " layers, embedding and head"),
        absl::StrCat(p.pipeline, " x ", chunks),
        stages ? std::max<int64_t>(blocks / least, 1) : blocks / p.pipeline);
    return;
  }
  if (p.virtual_pipeline > 1 && p.pipeline == 1) {
    violations.Add("parallelism.virtual_pipeline", "1 where pipeline is 1", p.virtual_pipeline, 1);
  } else if (least > 1 && p.pipeline == 1) {
    violations.Add("parallelism.schedule", "another where pipeline is 1", kind.name,
                   DefaultSchedule(1)->name);
  } else if (!kind.TakesChunks(p.virtual_pipeline)) {
    violations.Add("parallelism.virtual_pipeline",
                   absl::StrCat(kind.ChunksWanted(), " for ", kind.name), p.virtual_pipeline,
                   std::clamp<int64_t>(p.virtual_pipeline, least, kind.most_chunks));
  } else if (AccumulationSteps(job) % PipelineRound(p) != 0) {
    const int64_t data = DataParallel(job), unit = job.batch.micro * data * p.pipeline;
    violations.Add(
        "batch.global",
        absl::StrCat("a multiple of micro x data parallel x pipeline = ", job.batch.micro, " x ",
                     data, " x ", p.pipeline, " = ", unit, " for ", kind.name),
        job.batch.global, NearestMultiple(job.batch.global, unit, kMaxGlobalBatch));
  }
}

void CheckRecompute(const JobConfig& job, int64_t layers, Violations& violations) {
  const ParallelismConfig& p = job.parallelism;
  if (p.pipeline * p.virtual_pipeline > layers + 2) return;  // CheckPipeline reports it.
  violations.Check(
      "recompute.blocks", job.recompute.blocks,
      {.least = 0, .most = LayersOfAStage(p, layers), .note = "the layers on a pipeline stage"});
}

// Checks that the convolution of recurrent layers reads tokens of the preceding part alone.
void CheckParts(const JobConfig& job, const ModelFacts& facts, Violations& violations) {
  const int64_t parts = 2 * job.parallelism.context;
  const int64_t least = parts * std::max<int64_t>(facts.convolved_tokens, 1);
  if (parts == 2 || job.batch.sequence >= least) return;
  violations.Add("batch.sequence",
                 absl::StrCat("at least 2 x context x the ", facts.convolved_tokens,
                              " tokens that the model's convolutions look back = ", least),
                 job.batch.sequence, least);
}

// Returns whether the context ranks divide the sequence.
bool CheckSequence(const JobConfig& job, const ModelFacts& facts, Violations& violations) {
  const int64_t context = job.parallelism.context, sequence = job.batch.sequence;
  const int64_t unit = 2 * context, most = std::min(facts.max_sequence, kMaxSequence);
  if (context == 1 || sequence % unit == 0) return true;
  if (unit > most || facts.one_sequence) {
    const int64_t others = job.parallelism.tensor * job.parallelism.pipeline;
    const auto fits = [&](int64_t c) {
      const bool divides = !facts.one_sequence || c == 1 || most % (2 * c) == 0;
      return divides && DividesOver(job, c * others);
    };
    const std::string wanted =
        facts.one_sequence
            ? absl::StrCat("2 x context to divide the tokens of the model's samples, ", most)
            : absl::StrCat("at most half of the longest sequence, ", most);
    violations.Add("parallelism.context", wanted, context,
                   Nearest(context, std::max<int64_t>(1, most / 2), fits));
    return false;
  }
  violations.Add("batch.sequence", absl::StrCat("a multiple of 2 x context = ", unit), sequence,
                 NearestMultiple(sequence, unit, most));
  return false;
}

// Checks that the axes are legal, so that sizes derived from them have a meaning.
bool CheckAxes(const JobConfig& job, Violations& violations) {
  const ParallelismConfig& p = job.parallelism;
  bool legal = true;
  const auto range = [&](const std::string& name, int64_t size) {
    const DeclaredField* const declared = FindDeclared(name);
    CHECK(declared != nullptr && declared->whole) << name << " has no limits in job_spec.proto";
    legal &= violations.Check(name, size, *declared->whole);
  };
  std::vector<std::pair<const char*, int64_t>> factors;
  ForEachAxis(p, [&](const JobAxis& axis, int64_t size) {
    range(absl::StrCat("parallelism.", axis.name), size);
    if (axis.takes_ranks) factors.emplace_back(axis.name, size);
  });
  range("devices", job.devices);
  if (!legal) return false;
  const int64_t unit = ModelRanks(p);
  const std::string product = absl::StrCat(
      absl::StrJoin(factors, " x ", [](auto* out, auto& f) { absl::StrAppend(out, f.first); }),
      " = ",
      absl::StrJoin(factors, " x ", [](auto* out, auto& f) { absl::StrAppend(out, f.second); }),
      " = ", unit);
  if (unit > kMaxDevices) {  // No number of devices would do.
    const auto [name, size] =
        *std::max_element(factors.begin(), factors.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
    violations.Add(absl::StrCat("parallelism.", name),
                   absl::StrCat("at most ", kMaxDevices, " for ", product), size,
                   std::max<int64_t>(1, kMaxDevices / (unit / size)));
    return false;
  }
  if (job.devices % unit == 0) {
    const int64_t data = job.devices / unit;
    if (data % p.expert == 0) return true;
    violations.Add("parallelism.expert",
                   absl::StrCat("a divisor of the data-parallel ranks = ", data), p.expert,
                   Nearest(p.expert, data, [&](int64_t e) { return data % e == 0; }));
    return false;
  }
  violations.Add("devices", absl::StrCat("a multiple of ", product), job.devices,
                 NearestMultiple(job.devices, unit, kMaxDevices));
  return false;
}

// Returns whether the batch is legal and divides over the data-parallel ranks. False if the axes
// are not legal.
bool CheckBatch(const JobConfig& job, bool axes_legal, Violations& violations) {
  const BatchConfig& batch = job.batch;
  const auto range = [&](const char* name, int64_t size, const WholeNumbers& legal_sizes) {
    Violations found;  // The model may have said more about the size already.
    const bool legal = found.Check(name, size, legal_sizes);
    AddUnreported(found, "", violations);
    return legal;
  };
  const bool global = range("batch.global", batch.global, *DeclaredAt("batch.global").whole);
  const bool micro = range("batch.micro", batch.micro, *DeclaredAt("batch.micro").whole);
  const bool sequence = range("batch.sequence", batch.sequence, {.most = kMaxSequence});
  if (micro && sequence && batch.micro * batch.sequence > kMaxMicroBatchTokens) {
    violations.Add("batch.micro", absl::StrCat("at most ", kMaxMicroBatchTokens, " tokens at once"),
                   absl::StrCat(batch.micro, " x ", batch.sequence),
                   kMaxMicroBatchTokens / batch.sequence);
  }
  if (!global || !micro || !axes_legal) return false;
  const int64_t data = DataParallel(job), unit = batch.micro * data;
  if (batch.global % unit == 0) return sequence;
  violations.Add(
      "batch.global",
      absl::StrCat("a multiple of micro x data parallel = ", batch.micro, " x ", data, " = ", unit),
      batch.global, NearestMultiple(batch.global, unit, kMaxGlobalBatch));
  return false;
}

}  // namespace

absl::StatusOr<ModelConfig> DividedOverTensorRanks(const ModelConfig& model, int64_t tensor) {
  const std::optional<ExpertFacts> experts = FactsOf(model).experts;
  const auto legal = [&](int64_t ranks) {
    return (!experts || experts->experts % ranks == 0) &&
           TensorRule(TensorRule::Padded(model, ranks), std::nullopt).Legal(ranks);
  };
  ModelConfig padded = TensorRule::Padded(model, tensor);
  if (legal(tensor)) return padded;
  const TensorRule rule(padded, std::nullopt);
  std::string wanted = rule.Text(tensor);
  if (experts) absl::StrAppend(&wanted, ", and divides experts = ", experts->experts);
  Violations violations;
  violations.Add("tensor", wanted, tensor, Nearest(tensor, rule.most(), legal));
  return violations.ToStatus();
}

int64_t LayersOfAStage(const ParallelismConfig& p, int64_t layers) {
  if (p.pipeline * p.virtual_pipeline > layers + 2) return 0;
  const std::vector<int> stage_of = PlaceParts(
      {.kind = p.schedule_kind(), .stages = int(p.pipeline), .chunks = int(p.virtual_pipeline)});
  const auto parts = DivideBlocks(layers, int(stage_of.size()));
  std::vector<int64_t> on_stage(size_t(p.pipeline));
  for (size_t i = 0; i < parts->size(); ++i) {
    const auto [begin, end] = (*parts)[i];  // Embedding and head are not layers.
    on_stage[size_t(stage_of[i])] += std::min(end, layers + 1) - std::max<int64_t>(begin, 1);
  }
  return *std::max_element(on_stage.begin(), on_stage.end());
}

int64_t PipelineRound(const ParallelismConfig& p) {
  return p.schedule_kind()->whole_rounds ? p.pipeline : 1;
}

void ValidateLayout(const JobConfig& job, const ModelConfig* model, Violations& violations) {
  const ModelFacts facts = model != nullptr ? FactsOf(*model) : ModelFacts();
  if (model != nullptr && facts.one_sequence && job.batch.sequence != facts.max_sequence) {
    violations.Add("batch.sequence",
                   absl::StrCat(facts.max_sequence, ", the tokens of each of the model's samples"),
                   job.batch.sequence, facts.max_sequence);
  } else if (model != nullptr && job.batch.sequence > facts.max_sequence) {
    violations.Add("batch.sequence",
                   absl::StrCat("at most the model's max_seq = ", facts.max_sequence),
                   job.batch.sequence, facts.max_sequence);
  }
  const bool axes_legal = CheckAxes(job, violations);
  if (!CheckBatch(job, axes_legal, violations) || model == nullptr) return;
  if (CheckSequence(job, facts, violations)) {
    CheckParts(job, facts, violations);
    CheckTensor(job, *model, violations);
  }
  CheckExperts(job, *model, violations);
  CheckExpertSlots(job, *model, violations);
  CheckPipeline(job, facts.layers, violations);
  CheckRecompute(job, facts.layers, violations);
}

}  // namespace trainyard
