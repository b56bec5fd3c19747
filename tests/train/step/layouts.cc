#include "tests/train/step/layouts.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "models/arch/registry.h"
#include "tests/models/tiny.h"
#include "tests/testing/guarded_backend.h"
#include "tests/testing/ranks.h"
#include "train/step/communication.h"
#include "train/step/next_block.h"
#include "train/step/prefetch.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

constexpr int kSteps = 2;

using Tensors = std::map<std::string, std::vector<double>>;

// Global tensors, put together from boxes.
class Assembly {
 public:
  void Add(const ParameterBox& box, const std::vector<double>& values) {
    std::vector<double>& whole = tensors_[box.name];
    whole.resize(size_t(box.global_shape.elements()), NAN);
    const bool matrix = box.global_shape.rank() > 1;
    const int64_t columns = box.shape.back();
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t row = int64_t(i) / columns, column = int64_t(i) % columns;
      const int64_t global_row = matrix ? box.offset[0] + row : 0;
      double& element =
          whole[size_t(global_row * box.global_shape.back() + box.offset.back() + column)];
      copies_differ_ |= !std::isnan(element) && element != values[i];
      element = values[i];
    }
  }
  Tensors Take() {
    for (const auto& [name, values] : tensors_) {
      for (double value : values) CHECK(!std::isnan(value)) << name << " has a hole";
    }
    return std::move(tensors_);
  }
  bool copies_differ() const { return copies_differ_; }

 private:
  Tensors tensors_;
  bool copies_differ_ = false;  // Ranks disagree on an element that they both hold.
};

// This rank's micro-batches of one step.
StepBatch BatchOf(const LayoutCase& c, const RankEngine& engine, const Model* model, int step) {
  const BatchConfig& batch = c.job.batch;
  const Mesh& mesh = engine.mesh();
  const int64_t data = mesh.size({Axis::kExpert, Axis::kData});
  const int64_t coordinate = mesh.coordinate({Axis::kExpert, Axis::kData});
  const SequencePart part = engine.part();
  const int64_t count = batch.global * batch.sequence, micro = batch.micro * batch.sequence;
  const auto tokens = Tokens(count, FactsOf(c.model).vocab, uint64_t(step));
  const auto targets = Tokens(count, FactsOf(c.model).vocab, uint64_t(step) + 100);
  StepBatch result;
  for (int64_t i = 0; i < batch.global / batch.micro / data; ++i) {
    const size_t begin = size_t((i * data + coordinate) * micro);
    result.push_back({{"tokens", RowsOf(part, std::span(tokens).subspan(begin, size_t(micro)))},
                      {"targets", RowsOf(part, std::span(targets).subspan(begin, size_t(micro)))}});
  }
  if (model == nullptr) return result;
  // What else a model of the tests reads: of each sample, by its number in the global batch.
  for (const InputSpec& input : model->inputs()) {
    if (input.unit != InputSpec::Unit::kSample) continue;
    const size_t width = size_t(input.shape.elements());
    const auto all = Tokens(batch.global * int64_t(width), 5, uint64_t(step) + 200 + width);
    for (size_t i = 0; i < result.size(); ++i) {
      const size_t first = (i * size_t(data) + size_t(coordinate)) * size_t(batch.micro);
      const auto mine = std::span(all).subspan(first * width, size_t(batch.micro) * width);
      if (input.kind == InputSpec::Kind::kInteger) {
        result[i][input.name] = std::vector<int32_t>(mine.begin(), mine.end());
      } else {
        result[i][input.name] = std::vector<float>(mine.begin(), mine.end());
      }
    }
  }
  return result;
}

// Of all groups, since they were made.
CommunicationTable Counted(const RankEngine& engine) {
  CommunicationTable table;
  for (const auto& [group, collective] : engine.collectives()) {
    for (size_t i = 0; i < kCollectiveOps; ++i) {
      const OpCounts counts = collective->counts(CollectiveOp(i));
      AddTo(table, group, {CollectiveOp(i), counts.calls, counts.bytes});
    }
  }
  return table;
}

std::string ToText(const CommunicationTable& table) {
  std::ostringstream text;
  for (const auto& [key, c] : table) {
    text << "\n  " << (key.first.stream == Stream::kCommunication ? "async " : "") << key.first.axes
         << ' ' << Name(c.op) << ": " << c.calls << " calls, " << c.bytes << " bytes";
  }
  return text.str();
}

class Rank {
 public:
  Rank(const LayoutCase& c, CollectiveWorld& world, const std::function<void(Program&)>& edit)
      : case_(c), model_(c.make_model == nullptr ? nullptr : c.make_model(c.model)) {
    auto engine = RankEngine::Create(c.job, c.model,
                                     {.bucket_bytes = 2048,
                                      .expert_rows = c.expert_rows,
                                      .fuse = c.fuse,
                                      .edit = edit,
                                      .model = model_.get()},
                                     backend_, world);
    CHECK(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    EXPECT_EQ(backend_.total(), executable().plan().total_bytes() + sizeof(StepState)) << c.name();
    executable().WriteStepState({.seed = 7});
    executable().Run(Action::kInit);
    // As a step before would have left it.
    const auto& stage =
        engine_->schedule().stages[size_t(engine_->mesh().coordinate(Axis::kPipeline))];
    executable().Run(Action::kPrepare,
                     {.next_block = NextBlocks(executable().program(), stage.actions).back()});
  }

  // What the step's collectives should have added to the counters, and did not.
  std::string Uncounted(const CommunicationTable& before) const {
    CommunicationTable want = before;
    for (const auto& [key, c] : StepCommunication(executable().program(), engine_->schedule())) {
      AddTo(want, key.first, c);
    }
    CommunicationTable got = Counts();
    bool equal = got.size() <= want.size();
    const bool even = case_.is_even();
    for (const auto& [key, w] : want) {
      const Communication& c = got[key];
      equal &= w.exact || even ? c.calls == w.calls && c.bytes == w.bytes : c.calls > 0;
    }
    if (equal) return "";
    return absl::StrCat("rank ", engine_->mesh().rank, " before", ToText(before), "\n counted",
                        ToText(got), "\n wanted", ToText(want));
  }
  void ExpectNothingElseWasTouched() const {
    EXPECT_TRUE(backend_.Intact()) << "rank " << engine_->mesh().rank << " of " << case_.name();
  }
  CommunicationTable Counts() const {
    executable().WaitForCommunication();
    return Counted(*engine_);
  }

  StepState Step(int step) {
    const BatchConfig& batch = case_.job.batch;
    const StepState state = InitialState({.step = step,
                                          .learning_rate = 0.01,
                                          .clip_norm = 0.05,
                                          .tokens = batch.global * batch.sequence,
                                          .seed = 7});
    return engine_->runner().Step(state, BatchOf(case_, *engine_, model_.get(), step), [] {}).state;
  }

  // This rank's part.
  double ValidationLoss() {
    return engine_->runner().Forward(BatchOf(case_, *engine_, model_.get(), 1), 1);
  }

  void AddGradients(Assembly& assembly) const {
    const Program& program = executable().program();
    for (const ParameterBox& whole : program.Parameters()) {
      for (const Bucket& bucket : program.buckets) {
        for (const ParameterBox& box : Clip(whole, bucket.own)) {
          assembly.Add(box, ReadFlat(executable(), FlatBuffer::kGradient, box.flat));
        }
      }
    }
  }
  void AddWeights(Assembly& assembly) const {
    for (const ParameterBox& box : executable().program().OwnedParameters()) {
      assembly.Add(box, ReadFlat(executable(), FlatBuffer::kMaster, box.flat));
    }
    for (const ParameterBox& box : executable().program().FrozenParameters()) {
      const Tensor values = executable().frozen(box);
      const double* const first = values.as<double>();
      assembly.Add(box, std::vector<double>(first, first + values.elements()));
    }
  }

 private:
  Executable& executable() const { return engine_->executable(); }

  const LayoutCase& case_;
  const std::unique_ptr<Model> model_;
  const GuardedBackend backend_;
  std::unique_ptr<RankEngine> engine_;
};

// A difference that is no number is none to be overlooked.
double Worse(double a, double b) { return std::isnan(b) ? INFINITY : std::max(a, b); }
double Relative(double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1e-300); }

double LargestDifference(const Tensors& a, const Tensors& b) {
  CHECK(a.size() == b.size()) << a.size() << " and " << b.size() << " tensors";
  double largest = 0;
  for (const auto& [name, x] : a) {
    const std::vector<double>& y = b.at(name);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      difference += (x[i] - y[i]) * (x[i] - y[i]);
      norm += y[i] * y[i];
    }
    largest = Worse(largest, std::sqrt(difference / std::max(norm, 1e-300)));
  }
  return largest;
}

}  // namespace

bool LayoutCase::is_even() const {
  const std::optional<MoeConfig>& moe = AsDecoder(model).moe;
  return moe && moe->fake_balanced && expert_rows >= 1;
}

std::string LayoutCase::name() const {
  const ParallelismConfig& p = job.parallelism;
  const RecomputeConfig& again = job.recompute;
  const DecoderConfig& decoder = AsDecoder(model);
  const std::string experts = decoder.moe
                                  ? absl::StrCat("_", kRouters[router], "_", Name(p.expert_split),
                                                 "_rows", int(10 * expert_rows))
                                  : "";
  return absl::StrCat(
      model.family(), experts, decoder.tied ? "_tied" : "", "_tensor", p.tensor, "_context",
      p.context, p.context_exchange == ContextExchange::kAllGather ? "gathered" : "", "_expert",
      p.expert, "_data", DataParallel(job), "_pipeline", p.pipeline, "x", p.virtual_pipeline, "_",
      (p.schedule != nullptr ? p.schedule : p.schedule_kind())->name, "_zero", int(p.zero),
      again.blocks > 0 ? absl::StrCat("_again", again.blocks) : "",
      again.norms_and_activations ? "_norms_again" : "",
      frozen.empty() ? "" : absl::StrCat("_frozen_", frozen));
}

LayoutCase MakeLayoutCase(const std::string& model, const ParallelismConfig& p, int64_t data) {
  LayoutCase c;
  const int64_t tensor = p.tensor, parts = p.pipeline * p.virtual_pipeline;
  c.model = FindFamily(model)->defaults;
  DecoderConfig& decoder = AsDecoder(c.model);
  decoder.layers = std::max<int64_t>(2, parts - 1);  // And two: parts of one and two blocks.
  decoder.heads = 2 * tensor;
  // Fewer key/value heads than tensor ranks where that divides.
  decoder.kv_heads = model == "gpt3"                  ? decoder.heads
                     : tensor % 2 == 0 && tensor >= 4 ? tensor / 2
                                                      : tensor;
  decoder.head_dim = 2;
  decoder.hidden = model == "gpt3" ? decoder.heads * decoder.head_dim : 6;
  decoder.ffn = model == "gpt3" ? 4 * decoder.hidden : 3 * tensor;
  decoder.vocab = 5 * tensor;
  decoder.max_seq = 2 * tensor * p.context + 1;
  c.job.parallelism = p;
  c.job.devices = tensor * p.context * p.pipeline * data;
  if (decoder.moe) {
    decoder.ffn = 0;
    decoder.moe->experts = std::max<int64_t>(4, 2 * tensor * p.context * p.expert);
    decoder.moe->expert_ffn = 3;
    c = WithRouter(c, 0);
  }
  if (model == "gpt_oss") {
    GptOssConfig& own = c.model.As<GptOssConfig>();
    own.window = 3;          // Across two parts of the sequence, and not all of the sequence.
    own.swiglu_limit = 0.1;  // Of which some units of new weights are beyond.
    own.yarn_original_max_seq = 16;
    own.yarn_beta_fast = 4;
    own.attention_soft_cap = 0.5;
  }
  c.job.precision = PrecisionName::kF64;
  c.job.optimizer.adamw.epsilon = 1e-3;  // AdamW amplifies rounding where gradients are near zero.
  c.job.batch.micro = 1;
  c.job.batch.sequence = 2 * tensor * p.context;
  c.job.batch.global = data * (p.pipeline > 1 ? 2 * p.pipeline : 2);
  return c;
}

LayoutCase WithRouter(LayoutCase c, int router) {
  c.router = router;
  DecoderConfig& decoder = AsDecoder(c.model);
  MoeConfig& moe = *decoder.moe;
  moe = {.experts = moe.experts, .top_k = 2, .expert_ffn = moe.expert_ffn};
  const std::string name = kRouters[router];
  if (name == "softmax") moe.aux_loss = 0.05;
  if (name == "sigmoid" || name == "biased") moe.router = RouterScoring::kSigmoid;
  if (name == "sigmoid" || name == "turns") {
    moe.shared_experts = 1;
    moe.shared_ffn = 3 * c.job.parallelism.tensor;
  }
  if (name == "sigmoid") moe.aux_loss = 0.1, moe.routed_scaling = 2.5;
  if (name == "biased") moe.expert_bias = true, moe.bias_update_rate = 0.01;
  if (name == "grouped") moe.groups = 2, moe.norm_topk = false;
  if (c.model.family() == "gpt_oss") {  // Of all that, the losses and the bias.
    moe = {.experts = moe.experts,
           .top_k = moe.top_k,
           .expert_ffn = moe.expert_ffn,
           .expert_bias = moe.expert_bias,
           .bias_update_rate = moe.bias_update_rate,
           .aux_loss = moe.aux_loss};
  }
  if (name == "turns") {
    moe.fake_balanced = true;
    // A rank counts turns from its first token: then each piece of a sequence begins with expert 0.
    const ParallelismConfig& p = c.job.parallelism;
    c.job.batch.sequence = 2 * p.tensor * p.context * moe.experts / moe.top_k;
    decoder.max_seq = c.job.batch.sequence;
  }
  return c;
}

namespace {

// Each layout with the next router, and every third with experts that take few rows at once.
std::vector<LayoutCase> Routed(std::vector<LayoutCase> cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i] = WithRouter(cases[i], int(i % std::size(kRouters)));
    if (i % 3 == 1) cases[i].expert_rows = 0.3;
  }
  return cases;
}

}  // namespace

std::vector<LayoutCase> AllLayouts(const std::string& model, int64_t max_ranks) {
  const bool experts = FactsOf(FindFamily(model)->defaults).experts.has_value();
  std::vector<LayoutCase> cases;
  const auto add = [&](ParallelismConfig p, int64_t data) {
    for (Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kFull}) {
      if (zero == Zero::kFull && data * p.context == 1) continue;  // Nothing to share out.
      p.zero = zero;
      if (p.pipeline == 1) {
        for (const char* kind : {"ONE_F_ONE_B", "ZERO_BUBBLE"}) {
          p.schedule = FindSchedule(kind);
          cases.push_back(MakeLayoutCase(model, p, data));
        }
        continue;
      }
      for (const ScheduleKind& kind : AllSchedules()) {
        p.schedule = &kind;
        for (const int chunks : {1, 2, 3}) {
          if (!kind.TakesChunks(chunks) || (chunks == 3 && p.pipeline > 3)) continue;
          p.virtual_pipeline = chunks;
          cases.push_back(MakeLayoutCase(model, p, data));
        }
      }
    }
    if (p.context == 1) return;
    p.context_exchange = ContextExchange::kAllGather;
    p.virtual_pipeline = 1;
    p.schedule = FindSchedule("ONE_F_ONE_B");
    cases.push_back(MakeLayoutCase(model, p, data));
  };
  for (int64_t tensor = 1; tensor <= max_ranks; ++tensor) {
    for (int64_t context = 1; tensor * context <= max_ranks; ++context) {
      for (int64_t pipeline = 1; tensor * context * pipeline <= max_ranks; ++pipeline) {
        for (int64_t data = 1; tensor * context * pipeline * data <= max_ranks; ++data) {
          for (int64_t expert = 1; expert <= (experts ? data : 1); ++expert) {
            if (data % expert != 0) continue;
            add({.tensor = tensor,
                 .pipeline = pipeline,
                 .context = context,
                 .expert = expert,
                 .expert_split = ExpertSplit(cases.size() / 3 % 3)},
                data);
          }
        }
      }
    }
  }
  return experts ? Routed(std::move(cases)) : cases;
}

std::vector<LayoutCase> SomeLayouts(const std::string& model) {
  constexpr ptrdiff_t kChosen = 30;
  std::vector<LayoutCase> all = AllLayouts(model, 8);
  if (absl::NullSafeStringView(std::getenv("TRAINYARD_LAYOUTS")) == "all") return all;
  static const uint64_t seed = [] {
    const char* given = std::getenv("TRAINYARD_SEED");
    const uint64_t value =
        given == nullptr ? std::random_device()() : std::strtoull(given, nullptr, 10);
    std::cout << "layouts of more than 4 ranks: TRAINYARD_SEED=" << value << '\n';
    return value;
  }();
  const auto large = std::stable_partition(all.begin(), all.end(),
                                           [](const LayoutCase& c) { return c.job.devices <= 4; });
  std::shuffle(large, all.end(), std::mt19937_64(seed));
  CHECK(all.end() - large > kChosen) << model << " has few layouts";
  all.erase(large + kChosen, all.end());
  return all;
}

std::vector<LayoutCase> RecomputedLayouts(const std::string& model, int64_t max_ranks,
                                          size_t stride) {
  constexpr RecomputeConfig kKinds[] = {{.blocks = 1},
                                        {.norms_and_activations = true},
                                        {.blocks = 1, .norms_and_activations = true},
                                        {.blocks = 100}};
  constexpr PrecisionName kPrecisions[] = {PrecisionName::kF64, PrecisionName::kF32,
                                           PrecisionName::kBF16};
  const std::vector<LayoutCase> all = AllLayouts(model, max_ranks);
  std::vector<LayoutCase> cases;
  for (size_t i = 0; i < all.size(); i += stride) {
    cases.push_back(all[i]);
    cases.back().job.recompute = kKinds[cases.size() % std::size(kKinds)];
    cases.back().job.precision = kPrecisions[cases.size() % std::size(kPrecisions)];
  }
  return cases;
}

std::vector<LayoutCase> FrozenLayouts(const std::string& model, int64_t max_ranks, size_t stride) {
  struct Part {
    const char* name;
    std::vector<std::string> frozen, trainable;
  };
  const bool gpt = model == "gpt3";
  const std::string first = gpt ? "transformer.h.0." : "model.layers.0.";
  std::vector<Part> parts = {
      {"lower", {gpt ? "transformer.w*" : "model.embed_tokens.weight", first + "*"}, {}},
      {"matrices", {"*proj*", "*.c_*weight", "lm_head.weight"}, {}},
      {"all_but_norms", {}, {gpt ? "*ln_*" : "*norm*"}},
      {"all_but_head", {}, {gpt ? "transformer.wte.weight" : "lm_head.weight"}},
      {"all_but_one_layer", {}, {first + "*"}},
      {"upper", {"*lm_head*", "*layers.1.*", "*h.1.*"}, {}}};
  if (!gpt) parts.push_back({"of_a_product", {"*q_proj*", "*.up_proj.*", "*gate_proj*"}, {}});
  if (model == "qwen3_moe" || model == "gpt_oss") {
    parts.push_back({"experts", {"*.experts.*"}, {}});
  }
  if (model == "gpt_oss") parts.push_back({"biases_and_sinks", {"*.bias", "*.sinks"}, {}});
  const std::vector<LayoutCase> all = AllLayouts(model, max_ranks);
  std::vector<LayoutCase> cases;
  for (size_t i = 0; i < all.size(); i += stride) {
    const Part& part = parts[cases.size() % parts.size()];
    LayoutCase& c = cases.emplace_back(all[i]);
    c.frozen = part.name;
    c.job.frozen = part.frozen;
    c.job.trainable = part.trainable;
  }
  return cases;
}

TrainedSteps Train(const LayoutCase& c, const std::function<void(Program&)>& edit) {
  TrainedSteps result;
  std::mutex mutex;
  std::vector<Assembly> gradients(kSteps);
  Assembly weights;
  result.losses.resize(kSteps);
  result.auxiliary_losses.resize(kSteps);
  result.norms.resize(kSteps);
  const auto errors = RunWorlds(int(c.job.devices), [&](CollectiveWorld& world) {
    Rank rank(c, world, edit);
    for (int step = 1; step <= kSteps; ++step) {
      const CommunicationTable before = rank.Counts();
      const StepState state = rank.Step(step);
      const std::string uncounted = rank.Uncounted(before);
      const std::lock_guard lock(mutex);
      if (!uncounted.empty()) result.uncounted.push_back(uncounted);
      result.losses[size_t(step - 1)] = state.loss;
      result.auxiliary_losses[size_t(step - 1)] = state.auxiliary_loss;
      result.norms[size_t(step - 1)] = state.grad_norm;
      rank.AddGradients(gradients[size_t(step - 1)]);
      if (step < kSteps) continue;
      rank.ExpectNothingElseWasTouched();
      rank.AddWeights(weights);
      for (const auto& [key, c] : rank.Counts()) {
        if (c.op == CollectiveOp::kAllToAll) result.all_to_all_bytes += c.bytes;
      }
    }
  });
  for (const std::string& error : errors) CHECK(error.empty()) << error;
  if (!edit) {
    EXPECT_THAT(result.uncounted, ::testing::IsEmpty()) << c.name();
  }
  result.copies_differ = weights.copies_differ();
  for (Assembly& step : gradients) {
    result.copies_differ |= step.copies_differ();
    result.gradients.push_back(step.Take());
  }
  result.weights = weights.Take();
  return result;
}

TrainedSteps TrainOnOneRank(const LayoutCase& layout_case) {
  LayoutCase one = layout_case;
  one.job.batch.micro *= DataParallel(one.job);
  one.expert_rows = 2;
  one.job.parallelism = {};
  one.job.devices = 1;
  return Train(one);
}

double ValidationLoss(const LayoutCase& layout_case) {
  double loss = 0;
  std::mutex mutex;
  const auto errors = RunWorlds(int(layout_case.job.devices), [&](CollectiveWorld& world) {
    const double mine = Rank(layout_case, world, nullptr).ValidationLoss();
    const std::lock_guard lock(mutex);
    loss += mine;
  });
  for (const std::string& error : errors) CHECK(error.empty()) << error;
  return loss;
}

double LargestDifference(const TrainedSteps& a, const TrainedSteps& b) {
  if (a.copies_differ || b.copies_differ) return INFINITY;
  double largest = LargestDifference(a.weights, b.weights);
  for (int i = 0; i < kSteps; ++i) {
    const size_t step = size_t(i);
    largest = Worse(largest, Relative(a.losses[step], b.losses[step]));
    largest = Worse(largest, Relative(a.auxiliary_losses[step], b.auxiliary_losses[step]));
    largest = Worse(largest, Relative(a.norms[step], b.norms[step]));
    largest = Worse(largest, LargestDifference(a.gradients[step], b.gradients[step]));
  }
  return largest;
}

}  // namespace trainyard::testing
