#include "tests/train/step/layouts.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "models/arch/registry.h"
#include "models/language_model.h"
#include "tests/models/tiny.h"
#include "tests/testing/guarded_backend.h"
#include "tests/testing/ranks.h"
#include "tests/train/step/held_up.h"
#include "tests/train/step/tensors.h"
#include "train/step/communication.h"
#include "train/step/next_block.h"
#include "train/step/prefetch.h"
#include "train/step/rank_engine.h"
#include "train/trainer/counted_targets.h"

namespace trainyard::testing {
namespace {

// After each of the first steps, ranks wait for their communication, and what they have sent is
// counted. The next ones follow without a stop: communication goes on into the next step.
constexpr int kCountedSteps = 2, kFreeSteps = 4;

int StepsOf(const LayoutCase& c) { return kCountedSteps + (c.held_up == 0 ? 0 : kFreeSteps); }
bool ValidatesBefore(int step) { return step > kCountedSteps && step % 2 == 0; }

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

// A rank's part of a step's global batch.
struct Share {
  int64_t first;     // Of its samples in each run of `stride`.
  int64_t micro;     // Samples of a micro-batch.
  int64_t stride;    // Samples of all ranks' micro-batches that are computed at a time.
  int64_t sequence;  // Tokens of a sample.
  SequencePart part;
};

// Of an input of all samples, `width` elements a unit: those of this rank's micro-batch `index`.
template <typename T>
std::vector<T> MineOf(const Share& share, const InputSpec& input, int64_t index,
                      const std::vector<T>& all) {
  const int64_t width = input.shape.elements(), first = index * share.stride + share.first;
  const bool by_token = input.unit == InputSpec::Unit::kToken;
  std::vector<T> mine;
  for (int64_t sample = first; sample < first + share.micro; ++sample) {
    for (int64_t row = 0; row < (by_token ? share.part.rows : 1); ++row) {
      const int64_t unit = by_token ? sample * share.sequence + share.part.position(row) : sample;
      const auto begin = all.begin() + unit * width;
      mine.insert(mine.end(), begin, begin + width);
    }
  }
  return mine;
}

// Sequences of one to three documents each.
std::vector<int32_t> MakeDocumentBegins(int64_t samples, int64_t sequence, uint64_t seed) {
  std::vector<int32_t> begins;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const auto at = [&](uint64_t i) {
      return int32_t(RandomBits(seed, i, uint64_t(sample)) % uint64_t(sequence));
    };
    const auto [first, second] = std::minmax({at(0), at(1)});
    for (int32_t row = 0; row < sequence; ++row) {
      begins.push_back(row >= second ? second : row >= first ? first : 0);
    }
  }
  return begins;
}

// Leaves out about every fourth target.
InputData WithUncounted(InputData targets, uint64_t seed) {
  auto& ids = std::get<std::vector<int32_t>>(targets);
  for (size_t i = 1; i < ids.size(); ++i) {
    if (Uniform(seed, HashName("uncounted"), i) < 0.25) ids[i] = kNotCounted;
  }
  return targets;
}

std::vector<int32_t> MakeSampleNumbers(int64_t samples, int64_t sequence) {
  std::vector<int32_t> numbers;
  for (int64_t sample = 0; sample < samples; ++sample) {
    numbers.insert(numbers.end(), size_t(sequence), int32_t(sample));
  }
  return numbers;
}

// This rank's micro-batches of one step, with all that the model reads.
StepBatch BatchOf(const LayoutCase& c, const RankEngine& engine, const Model& model, int step) {
  const BatchConfig& batch = c.job.batch;
  const Mesh& mesh = engine.mesh();
  const int64_t data = mesh.size({Axis::kExpert, Axis::kData});
  const Share share{.first = mesh.coordinate({Axis::kExpert, Axis::kData}) * batch.micro,
                    .micro = batch.micro,
                    .stride = data * batch.micro,
                    .sequence = batch.sequence,
                    .part = engine.part()};
  StepBatch result(size_t(batch.global / share.stride));
  uint64_t seed = uint64_t(step);
  std::vector<InputSpec> inputs = model.inputs();
  if (ResetsAttentionMask(c.job.data)) inputs.push_back(DocumentBegins(batch.sequence));
  inputs.push_back(SampleNumbers());
  for (const InputSpec& input : inputs) {
    InputData data =
        input.name == kDocumentBegins  ? MakeDocumentBegins(batch.global, batch.sequence, seed)
        : input.name == kSampleNumbers ? MakeSampleNumbers(batch.global, batch.sequence)
                                       : MakeInput(input, batch.global, batch.sequence, seed);
    if (c.masked && input.name == "targets") data = WithUncounted(std::move(data), seed);
    for (size_t i = 0; i < result.size(); ++i) {
      std::visit(
          [&](const auto& all) { result[i][input.name] = MineOf(share, input, int64_t(i), all); },
          data);
    }
    seed += 100;
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
      : case_(c), model_((c.make_model == nullptr ? CreateModel : c.make_model)(c.model)) {
    auto engine = RankEngine::Create(c.job, c.model,
                                     {.bucket_bytes = 2048,
                                      .expert_rows = c.expert_rows,
                                      .fuse = c.fuse,
                                      .round_each_time = c.round_each_time,
                                      .edit = edit,
                                      .precision = c.precision,
                                      .model = model_.get()},
                                     backend_, world);
    CHECK(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    everyone_ = world.Everyone().value();
    EXPECT_EQ(backend_.total(), executable().plan().total_bytes() + sizeof(StepState)) << c.name();
    executable().WriteStepState({.seed = 7});
    executable().Run(Action::kInit);
    if (c.model.family() == "dit" || c.job.adapter) FillZeros();
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
  int number() const { return engine_->mesh().rank; }
  CommunicationTable Counts() const {
    executable().WaitForCommunication();
    return Counted(*engine_);
  }

  StepState Step(int step) {
    const BatchConfig& config = case_.job.batch;
    const StepBatch batch = BatchOf(case_, *engine_, *model_, step);
    const bool text = batch[0].contains("targets");
    const StepState state = InitialState(
        {.step = step,
         .learning_rate = case_.learning_rate,
         .clip_norm = 0.05,
         .tokens = config.global * config.sequence,
         .counts =
             text ? SumCounts(batch, engine_->mesh(), engine_->part(), *everyone_) : BatchCounts{},
         .seed = 7});
    return engine_->runner().Step(state, batch, [] {}).state;
  }

  // Tells it when the compute thread waits for communication.
  void Observe(HeldUpWorld& world) { executable().set_wait_observer(&world); }

  // This rank's part.
  double ValidationLoss() {
    return engine_->runner().Forward(BatchOf(case_, *engine_, *model_, 1), 1).loss;
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
      const auto add = [&](const auto* first) {
        assembly.Add(box, std::vector<double>(first, first + values.elements()));
      };
      if (values.dtype == DType::kU8) {
        add(values.as<uint8_t>());
      } else if (values.dtype == DType::kF32) {
        add(values.as<float>());
      } else {
        add(values.as<double>());
      }
    }
  }

 private:
  Executable& executable() const { return engine_->executable(); }

  // Gives weights that begin at zero other values, by global index: new gates of zero would hide
  // what lies behind them. So would groups of NF4 that are all the same.
  void FillZeros() {
    const auto fill = [](const ParameterBox& box, const Tensor& values) {
      const bool same = box.init.kind == Init::Kind::kConstant;
      if (box.init.kind != Init::Kind::kZeros && !same) return;
      const int64_t columns = box.shape.back(), whole = box.global_shape.back();
      const int64_t first_row = box.global_shape.rank() > 1 ? box.offset[0] : 0;
      DispatchFloat(values.dtype, [&](auto scalar) {
        using T = decltype(scalar);
        for (int64_t i = 0; i < box.shape.elements(); ++i) {
          const int64_t row = first_row + i / columns, column = box.offset.back() + i % columns;
          const auto index = uint64_t(row * whole + column);
          const double other = 0.3 * Normal(3, HashName(box.name.c_str()), index);
          values.as<T>()[i] = T(Accumulate<T>(same ? box.init.scale * (1 + other) : other));
        }
      });
    };
    for (const ParameterBox& box : executable().program().OwnedParameters()) {
      fill(box, executable().flat(FlatBuffer::kMaster, box.flat));
    }
    for (const ParameterBox& box : executable().program().FrozenParameters()) {
      fill(box, executable().frozen(box));
    }
  }

  const LayoutCase& case_;
  const std::unique_ptr<Model> model_;
  const GuardedBackend backend_;
  std::unique_ptr<RankEngine> engine_;
  std::unique_ptr<Collective> everyone_;
};

// A difference that is no number is none to be overlooked.
double Worse(double a, double b) { return std::isnan(b) ? INFINITY : std::max(a, b); }
double Relative(double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1e-300); }

// Puts together what the ranks have trained. Thread-safe.
class Trained {
 public:
  explicit Trained(size_t steps) : gradients_(steps), validation_parts_(steps) {
    result_.losses.resize(steps);
    result_.auxiliary_losses.resize(steps);
    result_.norms.resize(steps);
  }

  void AddStep(int step, const StepState& state) {
    const std::lock_guard lock(mutex_);
    const size_t i = size_t(step - 1);
    result_.losses[i] = state.loss;
    result_.auxiliary_losses[i] = state.auxiliary_loss;
    result_.norms[i] = state.grad_norm;
  }
  void AddValidation(int step, int rank, double part) {
    const std::lock_guard lock(mutex_);
    validation_parts_[size_t(step - 1)][rank] = part;
  }
  void AddGradients(int step, const Rank& rank) {
    const std::lock_guard lock(mutex_);
    rank.AddGradients(gradients_[size_t(step - 1)]);
  }
  void AddUncounted(const std::string& uncounted) {
    const std::lock_guard lock(mutex_);
    if (!uncounted.empty()) result_.uncounted.push_back(uncounted);
  }
  void AddEnd(const Rank& rank) {
    const CommunicationTable counts = rank.Counts();  // Waits for the other ranks.
    const std::lock_guard lock(mutex_);
    rank.AddWeights(weights_);
    for (const auto& [key, c] : counts) {
      if (c.op == CollectiveOp::kAllToAll) result_.all_to_all_bytes += c.bytes;
    }
  }

  TrainedSteps Take() {
    result_.copies_differ = weights_.copies_differ();
    for (Assembly& step : gradients_) {
      result_.copies_differ |= step.copies_differ();
      result_.gradients.push_back(step.Take());
    }
    result_.weights = weights_.Take();
    for (const auto& parts : validation_parts_) {
      double& loss = result_.validation_losses.emplace_back();
      for (const auto& [rank, part] : parts) loss += part;
    }
    return std::move(result_);
  }

 private:
  std::mutex mutex_;
  std::vector<Assembly> gradients_;                      // Of a step that was not asked: none.
  std::vector<std::map<int, double>> validation_parts_;  // By step and rank.
  Assembly weights_;
  TrainedSteps result_;
};

void TrainRank(const LayoutCase& c, Rank& rank, Trained& trained) {
  const int steps = StepsOf(c);
  for (int step = 1; step <= steps; ++step) {
    const bool counted = step <= kCountedSteps;
    CommunicationTable before;
    if (counted) before = rank.Counts();
    if (ValidatesBefore(step)) {
      trained.AddValidation(step, rank.number(), rank.ValidationLoss());
    }
    trained.AddStep(step, rank.Step(step));
    if (counted) trained.AddUncounted(rank.Uncounted(before));
    if (counted || step == steps) trained.AddGradients(step, rank);
  }
  trained.AddEnd(rank);
  rank.ExpectNothingElseWasTouched();
}

}  // namespace

TrainedSteps Train(const LayoutCase& c, const std::function<void(Program&)>& edit) {
  Trained trained(size_t(StepsOf(c)));
  const auto errors = RunWorlds(int(c.job.devices), [&](CollectiveWorld& world) {
    if (c.held_up == 0) {
      Rank rank(c, world, edit);
      return TrainRank(c, rank, trained);
    }
    HeldUpWorld held_up(world, c.held_up);
    Rank rank(c, held_up, edit);
    rank.Observe(held_up);
    TrainRank(c, rank, trained);
  });
  for (const std::string& error : errors) CHECK(error.empty()) << error;
  TrainedSteps result = trained.Take();
  if (!edit) {
    EXPECT_THAT(result.uncounted, ::testing::IsEmpty()) << c.name();
  }
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
  for (size_t i = 0; i < a.losses.size(); ++i) {
    largest = Worse(largest, Relative(a.losses[i], b.losses[i]));
    largest = Worse(largest, Relative(a.auxiliary_losses[i], b.auxiliary_losses[i]));
    largest = Worse(largest, Relative(a.norms[i], b.norms[i]));
    largest = Worse(largest, Relative(a.validation_losses[i], b.validation_losses[i]));
    largest = Worse(largest, LargestDifference(a.gradients[i], b.gradients[i]));
  }
  return largest;
}

}  // namespace trainyard::testing
