#include "models/arch/conventions.h"

#include <array>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/violations.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

struct Row {
  FlopsConvention convention;
  absl::string_view name;
  double bf16_peak;
  TrainingTime pretraining, fine_tuning;  // No tokens: no such column.
  bool fine_tunes;                        // The page has rows of fine-tuning.
};
constexpr double kDgxcTokens = 1e12;
// 989.5 is half of FP8's 1979. No page says so, but it gives the printed MFU.
constexpr std::array<Row, 6> kRows = {{
    {FlopsConvention::kExact, "exact", 989e12, {}, {}, false},
    {FlopsConvention::kNemo20, "nemo20", 989e12, {10e12, 1024}, {10e6, 0}, true},
    {FlopsConvention::kAutoModel, "automodel", 989e12, {}, {}, true},
    {FlopsConvention::kDgxcLlama31, "dgxc-llama31", 989.5e12, {kDgxcTokens, 0}, {}, false},
    {FlopsConvention::kDgxcNemotron4, "dgxc-nemotron4", 989e12, {kDgxcTokens, 0}, {}, false},
    {FlopsConvention::kMegatron, "megatron", 989e12, {}, {}, false},
}};

const Row& RowOf(FlopsConvention convention) {
  for (const Row& row : kRows) {
    if (row.convention == convention) return row;
  }
  CHECK(false) << "convention " << int(convention) << " has no row";
}

struct NamedTask {
  FlopsTask task;
  absl::string_view name;
};
constexpr std::array<NamedTask, 3> kTasks = {
    {{FlopsTask::kPretrain, "pretrain"}, {FlopsTask::kSft, "sft"}, {FlopsTask::kLora, "lora"}}};

template <typename Rows>
std::vector<std::string> NamesOf(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

template <typename Rows>
auto Find(const Rows& rows, absl::string_view what, absl::string_view name)
    -> absl::StatusOr<const typename Rows::value_type*> {
  for (const auto& row : rows) {
    if (row.name == name) return &row;
  }
  const std::string near = NearestName(name, NamesOf(rows));
  return absl::InvalidArgumentError(
      absl::StrCat("no ", what, " \"", name, "\"; known are ", absl::StrJoin(NamesOf(rows), ", "),
                   near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

struct Count {
  Flops flops;
  std::vector<std::string> slips = {};
};

// What formulas differ in.
struct Form {
  bool causal = false;         // Half of full attention.
  bool windows = false;        // Layers with a window count the pairs within it.
  double query_width = 0;      // Heads x dims of a head; 0: the model's.
  double group_ratio = 0;      // Key and value heads over heads; 0: the model's.
  bool router = false;         // Of a hybrid, the projection to the experts' scores counts.
  double mamba_width = 0;      // 0: the model's.
  double flops_per_state = 6;  // Of Mamba's scan, for each element of the state.
  double mean_length = 0;      // Of the sequences within which tokens attend; 0: all are whole.
};

// FLOPs of the query-key pairs of a layer, for a token.
double PairsOfALayer(double width, double sequence, const Form& form) {
  return (form.causal ? 3 : 6) * width * (form.mean_length > 0 ? form.mean_length : sequence);
}

// Every factor 6 is 2 (multiply and add) x 3 (forward, input gradient, weight gradient).
Flops Formula(const ModelConfig& config, int64_t sequence, const Form& form) {
  const ModelFacts facts = FactsOf(config);
  const FormulaSizes& sizes = facts.sizes;
  const auto or_all = [&](int64_t layers) { return double(layers < 0 ? facts.layers : layers); };
  const double layers = or_all(sizes.attention_layers), h = double(sizes.hidden);
  const double s = double(sequence), d = double(sizes.head_dim), heads = double(sizes.heads);
  const double queries = form.query_width > 0 ? form.query_width : heads * d;
  const double groups =
      form.group_ratio > 0 ? form.group_ratio : double(facts.kv_heads) / double(sizes.heads);
  const double weights = sizes.attention_weights == 0 ? h * queries * (2 + 2 * groups)
                                                      : double(sizes.attention_weights);
  // Scores and their product with the values, of heads of other width where they are.
  const double width =
      queries + (sizes.value_head_dim == 0 ? queries : heads * double(sizes.value_head_dim));
  double pairs = layers * PairsOfALayer(width, s, form);
  if (const double w = double(sizes.window); form.windows && w < s) {
    const double windowed = double(sizes.windowed_layers);
    pairs += windowed * (6 * width * (w - w * (w - 1) / (2 * s)) - PairsOfALayer(width, s, form));
  }
  const double matrices = FindFamily(config.family())->gated ? 3 : 2;
  double mlp =
      sizes.mlp_weights == 0 ? matrices * h * double(sizes.mlp_width) : double(sizes.mlp_weights);
  if (form.router && sizes.mamba_layers > 0 && facts.experts) {
    mlp += h * double(facts.experts->experts);
  }
  Flops flops{.qkvo = layers * 6 * weights,
              .attention = pairs,
              .mlp = or_all(sizes.mlp_layers) * 6 * mlp,
              .output = 6 * double(facts.vocab) * h,
              .other = {}};
  if (sizes.mamba_layers > 0) {
    const double inner = form.mamba_width > 0 ? form.mamba_width : double(sizes.mamba_width);
    const double state = double(sizes.mamba_state);
    const double in =
        2 * inner + 2 * double(sizes.mamba_groups) * state + double(sizes.mamba_heads);
    flops.other["mamba"] = double(sizes.mamba_layers) *
                           (6 * h * in + 6 * inner * h + form.flops_per_state * inner * state);
  }
  return flops;
}

void Scale(double factor, Flops& flops) {
  for (double* part : {&flops.qkvo, &flops.attention, &flops.mlp, &flops.output}) *part *= factor;
  for (auto& [label, part] : flops.other) part *= factor;
}

// The DGX Cloud pages print the FLOPs of a sequence of these models, and their MFU follow from what
// is printed. Other figures of theirs are not rounded.
constexpr double kPrintedOfASequence[] = {4.74e14, 3.94e15, 1.01e16};

void RoundAsPrinted(int64_t sequence, Count& count) {
  const double exact = count.flops.total() * double(sequence);
  for (const double printed : kPrintedOfASequence) {
    if (std::abs(exact / printed - 1) > 0.002) continue;
    count.flops.other["rounding"] = (printed - exact) / double(sequence);
    count.slips.push_back(
        absl::StrCat("the FLOPs of a sequence, ", exact, ", are rounded to ", printed));
  }
}

// 12 L h^2 (1 + g/a + s/h) + 18 L f h + 6 V h.
Count DgxcLlama31(const ModelConfig& config, int64_t sequence) {
  Form form;
  Count count;
  const ModelFacts facts = FactsOf(config);
  if (facts.sizes.heads == 128 && facts.kv_heads == 8) {
    form.group_ratio = 8.0 / 64;
    count.slips.push_back("groups / heads is 8/64; the model has 8/128");
  }
  count.flops = Formula(config, sequence, form);
  RoundAsPrinted(sequence, count);
  return count;
}

// 24 L h^2 + 12 L h s + 48 L h^2 + 6 V h.
Count DgxcNemotron4(const ModelConfig& config, int64_t sequence) {
  const ModelFacts facts = FactsOf(config);
  const double layers = double(facts.layers), h = double(facts.sizes.hidden);
  Count count{{.qkvo = 24 * layers * h * h,
               .attention = 12 * layers * h * double(sequence),
               .mlp = 48 * layers * h * h,
               .output = 6 * double(facts.vocab) * h,
               .other = {}}};
  if (facts.kv_heads != facts.sizes.heads) {
    count.slips.push_back(absl::StrCat("every head counts with keys and values of its own; the ",
                                       "model has ", facts.kv_heads, " of ", facts.sizes.heads));
  }
  if (facts.sizes.mlp_width != 4 * facts.sizes.hidden) {
    count.slips.push_back(absl::StrCat("ffn is 4 hidden; the model has ", facts.sizes.mlp_width));
  }
  RoundAsPrinted(sequence, count);
  return count;
}

// NeMo's fine-tuning rows train on packs of SQuAD. The page does not print the packs; these two
// numbers give its six rows within 0.06 %.
constexpr double kPackFill = 0.9953;  // The part of a pack that is tokens.
constexpr double kPackLength = 247;   // Sum of the squared lengths over the sum of the lengths.

// Of frozen matrices, the gradient of the weights is left out. Attention has no weights.
Count Nemo20(const ModelConfig& config, int64_t sequence, FlopsTask task) {
  const double mean_length = task == FlopsTask::kPretrain ? 0 : kPackLength;
  Count count{Formula(config, sequence, {.mean_length = mean_length})};
  if (task == FlopsTask::kPretrain) return count;
  Flops& flops = count.flops;
  if (task == FlopsTask::kLora) {
    for (double* part : {&flops.qkvo, &flops.mlp, &flops.output}) *part *= 2.0 / 3;
  }
  Scale(kPackFill, flops);
  return count;
}

// Adapters of the page's rank beside every projection, over all other parameters.
double TrainedOverFrozen(const ModelConfig& config) {
  constexpr int64_t kRank = 16;
  double adapters = 0, frozen = 0;
  const Program program = RecordForCounting(config, 1);
  for (const ParameterStorage& storage : program.storages) {
    for (const ParameterSpec& spec : storage.parameters) {
      frozen += double(spec.shape.elements());
      if (!absl::EndsWith(spec.name, "_proj.weight")) continue;
      adapters += double(kRank * (spec.shape[0] + spec.shape[1]));
    }
  }
  return adapters / frozen;
}

Count AutoModel(const ModelConfig& config, int64_t sequence, FlopsTask task) {
  const FormulaSizes sizes = FactsOf(config).sizes;
  Form form{.causal = true, .windows = true, .router = true};
  Count count;
  if (sizes.automodel_heads_of_hidden && sizes.heads * sizes.head_dim != sizes.hidden) {
    form.query_width = double(sizes.hidden);
    count.slips.push_back(absl::StrCat("a head has hidden / heads = ", sizes.hidden / sizes.heads,
                                       " dims; the model has ", sizes.head_dim));
  }
  count.flops = Formula(config, sequence, form);
  if (task != FlopsTask::kLora) return count;
  Scale((2 + TrainedOverFrozen(config)) / 3, count.flops);
  count.slips.push_back(
      "everything shrinks with the share of trained weights; attention has no weights");
  return count;
}

Count Megatron(const ModelConfig& config, int64_t sequence) {
  const FormulaSizes sizes = FactsOf(config).sizes;
  Form form{.causal = true, .flops_per_state = 21};
  Count count;
  if (sizes.mamba_layers > 0 && sizes.mamba_width != 2 * sizes.hidden) {
    form.mamba_width = 2 * double(sizes.hidden);
    count.slips.push_back(
        absl::StrCat("Mamba is 2 hidden wide; the model has ", sizes.mamba_width));
  }
  if (sizes.windowed_layers > 0) {
    count.slips.push_back(absl::StrCat("all layers count whole sequences; the model has ",
                                       sizes.windowed_layers, " layers with a window of ",
                                       sizes.window));
  }
  count.flops = Formula(config, sequence, form);
  return count;
}

Count CountOf(const ModelConfig& config, int64_t sequence, FlopsConvention convention,
              FlopsTask task) {
  CHECK(sequence >= 1 && sequence <= kMaxSequence) << "sequence " << sequence;
  const absl::Status status = CheckConvention(config, convention, task);
  CHECK(status.ok()) << status.message();
  switch (convention) {
    case FlopsConvention::kExact:
      return {FlopsPerToken(config, sequence)};
    case FlopsConvention::kNemo20:
      return Nemo20(config, sequence, task);
    case FlopsConvention::kAutoModel:
      return AutoModel(config, sequence, task);
    case FlopsConvention::kDgxcLlama31:
      return DgxcLlama31(config, sequence);
    case FlopsConvention::kDgxcNemotron4:
      return DgxcNemotron4(config, sequence);
    case FlopsConvention::kMegatron:
      return Megatron(config, sequence);
  }
  return {};
}

}  // namespace

absl::string_view Name(FlopsConvention convention) { return RowOf(convention).name; }
std::vector<std::string> FlopsConventionNames() { return NamesOf(kRows); }
std::vector<std::string> FlopsTaskNames() { return NamesOf(kTasks); }

absl::StatusOr<FlopsConvention> ParseFlopsConvention(absl::string_view name) {
  const auto row = Find(kRows, "FLOPs convention", name);
  if (!row.ok()) return row.status();
  return (*row)->convention;
}

absl::StatusOr<FlopsTask> ParseFlopsTask(absl::string_view name) {
  const auto row = Find(kTasks, "task", name);
  if (!row.ok()) return row.status();
  return (*row)->task;
}

absl::Status CheckConvention(const ModelConfig& config, FlopsConvention convention,
                             FlopsTask task) {
  const ModelFacts facts = FactsOf(config);
  if (facts.vocab == 0 && convention != FlopsConvention::kExact) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted exact, since the others are formulas of models of text, which family ",
                     config.family(), " is not; found ", Name(convention)));
  }
  const bool dgxc =
      convention == FlopsConvention::kDgxcLlama31 || convention == FlopsConvention::kDgxcNemotron4;
  if (dgxc && (facts.experts || facts.sizes.mamba_layers > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wanted exact, automodel, megatron or nemo20, since the page's formula is for layers of ",
        "attention and a dense MLP, unlike those of family ", config.family(), "; found ",
        Name(convention)));
  }
  if (task == FlopsTask::kPretrain) return absl::OkStatus();
  if (!RowOf(convention).fine_tunes) {
    std::vector<std::string> names;
    for (const Row& row : kRows) {
      if (row.fine_tunes) names.emplace_back(row.name);
    }
    return absl::InvalidArgumentError(absl::StrCat("wanted one whose page has fine-tuning, ",
                                                   absl::StrJoin(names, " or "), "; found ",
                                                   Name(convention)));
  }
  if (!facts.experts) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("no page has fine-tuning of models with experts, as family ", config.family()));
}

Flops FlopsPerToken(const ModelConfig& config, int64_t sequence, FlopsConvention convention,
                    FlopsTask task) {
  return CountOf(config, sequence, convention, task).flops;
}

std::vector<std::string> Slips(const ModelConfig& config, int64_t sequence,
                               FlopsConvention convention, FlopsTask task) {
  return CountOf(config, sequence, convention, task).slips;
}

double PublishedPeak(FlopsConvention convention, bool fp8) {
  return fp8 ? 1979e12 : RowOf(convention).bf16_peak;
}

std::optional<TrainingTime> PublishedTrainingTime(FlopsConvention convention, FlopsTask task) {
  const Row& row = RowOf(convention);
  const TrainingTime time = task == FlopsTask::kPretrain ? row.pretraining : row.fine_tuning;
  if (time.tokens == 0) return std::nullopt;
  return time;
}

}  // namespace trainyard
