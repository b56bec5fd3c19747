// Proves what freezing parameters does to a program: the memory plan is what trainable and frozen
// bytes add up to, backward computes what trainable parameters want and nothing else, their
// gradients are to the bit those of a program without frozen parameters, and frozen ones begin with
// the same numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "models/program/op.h"
#include "models/program/plan.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kBatch = 2, kSequence = 8;

using Freezes = std::function<bool(const std::string& name)>;

Program Record(const ModelConfig& config, const Freezes& freezes,
               const Precision& precision = Precision::F64(), const Zero zero = Zero::kNone) {
  TrainingOptions options{
      .record = {.precision = precision, .micro_batch = kBatch, .sequence = kSequence},
      .zero = zero};
  if (freezes) {
    options.frozen = [freezes](const ParameterSpec& spec) { return freezes(spec.name); };
  }
  return RecordTraining(*CreateModel(config), options);
}

Freezes NamesWith(std::vector<std::string> parts) {
  return [parts](const std::string& name) {
    return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
      return name.find(part) != std::string::npos;
    });
  };
}

Freezes AllBut(std::vector<std::string> parts) {
  return
      [freezes = NamesWith(std::move(parts))](const std::string& name) { return !freezes(name); };
}

// A mixture with everything that a router can have.
ModelConfig GroupedMoe() {
  ModelConfig config = TinyMoe();
  MoeConfig& moe = *AsDecoder(config).moe;
  moe.router = RouterScoring::kSigmoid;
  moe.expert_bias = true;
  moe.shared_experts = 1, moe.shared_ffn = 4;
  return config;
}

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// From the shapes alone: master weights and two moments in f32, gradients in f32 and a copy in bf16
// of what is trainable; bf16 alone of what is frozen.
TEST(FrozenPlan, IsWhatTrainableAndFrozenBytesAddUpTo) {
  ModelConfig config = TinyLlama();
  AsDecoder(config).layers = 6;
  AsDecoder(config).vocab = 3;
  // Five of six layers, and next to no embedding.
  const Freezes freezes =
      NamesWith({"embed_tokens", "layers.0.", "layers.1.", "layers.2.", "layers.3.", "layers.4."});
  const Program all = Record(config, nullptr, Precision::BF16());
  const Program program = Record(config, freezes, Precision::BF16());
  int64_t trainable = 0, frozen = 0, frozen_bytes = 0;
  for (const ParameterStorage& storage : all.storages) {
    const int64_t elements = storage.shape.elements();
    if (freezes(storage.parameters.front().name)) {
      frozen += elements;
      frozen_bytes += RoundUp(2 * elements, 256);
    } else {
      trainable += RoundUp(elements, 64);
    }
  }
  EXPECT_NEAR(double(frozen) / double(frozen + trainable), 0.8, 0.02);

  const MemoryPlan plan = PlanMemory(program);
  const auto bytes = [&](FlatBuffer buffer) { return int64_t(plan.flat_bytes[size_t(buffer)]); };
  EXPECT_EQ(bytes(FlatBuffer::kMaster), 4 * trainable);
  EXPECT_EQ(bytes(FlatBuffer::kFirstMoment), 4 * trainable);
  EXPECT_EQ(bytes(FlatBuffer::kSecondMoment), 4 * trainable);
  EXPECT_EQ(bytes(FlatBuffer::kGradient), 4 * trainable);
  EXPECT_EQ(bytes(FlatBuffer::kCompute), 2 * trainable);
  EXPECT_EQ(bytes(FlatBuffer::kFrozen), frozen_bytes);
  EXPECT_EQ(int64_t(plan.parameter_bytes()), 18 * trainable + frozen_bytes);
  // Backward reads activations of the last layer alone.
  EXPECT_LT(plan.activation_bytes(), PlanMemory(all).activation_bytes() / 2);
  EXPECT_EQ(program.num_parameters, all.num_parameters);
}

// docs/parallelism.md: a shard of each block, two whole blocks in windows, and whole what several
// blocks use or what is not rounded.
TEST(FrozenPlan, OfZeroFullIsAShardAndTwoBlocks) {
  for (const int ranks : {2, 3}) {
    for (const bool tied : {false, true}) {
      const ModelConfig config = TinyLlama(tied);
      TrainingOptions options{.record = {.precision = Precision::BF16(),
                                         .micro_batch = kBatch,
                                         .sequence = kSequence,
                                         .mesh = {.data = ranks}},
                              .zero = Zero::kFull};
      options.frozen = [](const ParameterSpec& spec) { return spec.name != "model.norm.weight"; };
      const Program program = RecordTraining(*CreateModel(config), options);
      std::map<int, int64_t> blocks;  // Bytes, by block.
      int64_t whole = 0;
      for (const ParameterStorage& storage : program.storages) {
        if (!storage.frozen) continue;
        const int64_t bytes = RoundUp(2 * storage.shape.elements(), 256);
        const bool table = tied && storage.parameters.front().name == "model.embed_tokens.weight";
        (table ? whole : blocks[storage.block]) += bytes;
        EXPECT_EQ(program.frozen_buffer(storage.flat),
                  table ? FlatBuffer::kFrozen : FlatBuffer::kFrozenWindow);
      }
      int64_t shards = 0;
      std::array<int64_t, 2> windows = {};
      for (const auto& [block, bytes] : blocks) {
        const int64_t padded = RoundUp(bytes, 256 * ranks);
        shards += padded / ranks;
        int64_t& window = windows[size_t(program.window_of(block))];
        window = std::max(window, padded);
      }
      const MemoryPlan plan = PlanMemory(program);
      EXPECT_EQ(int64_t(plan.flat_bytes[size_t(FlatBuffer::kFrozen)]), whole + shards);
      EXPECT_EQ(int64_t(plan.flat_bytes[size_t(FlatBuffer::kFrozenWindow)]),
                windows[0] + windows[1]);
    }
  }
}

double BackwardFlops(const Program& program) {
  return program.CostOf(List::kBackwardInput).flops + program.CostOf(List::kBackwardWeight).flops;
}

TEST(FrozenBackward, EndsAtTheLowestTrainableParameter) {
  const Program program = Record(TinyLlama(), NamesWith({"embed_tokens", "layers.0."}));
  for (const Instance& instance : program.instances) {
    if (!IsBackward(instance.list)) continue;
    EXPECT_GE(instance.block, 2) << program.Describe(instance);
  }
  // The whole model's backward of these blocks: the norm before the layer's first product is
  // trainable, so that nothing of it is left out.
  const Program all = Record(TinyLlama(), nullptr);
  double want = 0;
  for (const Instance& instance : all.instances) {
    if (!IsBackward(instance.list) || instance.block < 2) continue;
    want += instance.op->CostOf(all, instance).flops;
  }
  EXPECT_EQ(BackwardFlops(program), want);
}

TEST(FrozenBackward, OfTheHeadAloneIsItsWeightsGradient) {
  const ModelConfig config = TinyLlama();
  const Program program = Record(config, AllBut({"lm_head"}));
  const DecoderConfig& c = AsDecoder(config);
  const double product = 2.0 * double(kBatch * kSequence * c.vocab * c.hidden);
  EXPECT_EQ(BackwardFlops(program), 2 * product) << "the logits, and the gradient of their weight";
  int backward = 0;
  for (const Instance& instance : program.instances) backward += IsBackward(instance.list);
  EXPECT_EQ(backward, 1);
}

TEST(FrozenBackward, OfNormsAloneHasNoWeightGradients) {
  const ModelConfig config = TinyLlama();
  const Program all = Record(config, nullptr);
  const Program program = Record(config, AllBut({"norm"}));
  EXPECT_EQ(program.CostOf(List::kBackwardWeight).flops, 0);
  const DecoderConfig& c = AsDecoder(config);
  const double head = 2.0 * double(kBatch * kSequence * c.vocab * c.hidden);
  EXPECT_EQ(program.CostOf(List::kBackwardInput).flops,
            all.CostOf(List::kBackwardInput).flops - head);
}

TEST(FrozenBackward, OfExpertsCountsTheProductsThatAreLeft) {
  const ModelConfig config = TinyMoe();
  const auto flops = [&](const Freezes& freezes) {
    return Record(config, freezes).CostOf(List::kBackwardInput).flops;
  };
  const double all = flops(nullptr), gate_up = flops(NamesWith({"gate_proj", "up_proj"})),
               down = flops(NamesWith({"down_proj"}));
  const MoeConfig& moe = *AsDecoder(config).moe;
  const double product = 2.0 * double(AsDecoder(config).layers * kBatch * kSequence * moe.top_k *
                                      moe.expert_ffn * AsDecoder(config).hidden);
  EXPECT_EQ(all - gate_up, 2 * product);
  EXPECT_EQ(all - down, product);
}

TEST(FrozenProgram, OfNothingFrozenIsTheSameText) {
  for (const ModelConfig& config : {TinyLlama(true), TinyGpt3(), GroupedMoe()}) {
    const Freezes none = [](const std::string&) { return false; };
    EXPECT_EQ(Record(config, none).Dump(), Record(config, nullptr).Dump());
  }
}

// Linear layers divide their products; experts, which have one tensor, cannot.
TEST(FrozenProgramDeathTest, RefusesAStorageThatAPatternDivides) {
  EXPECT_DEATH(Record(TinyMoe(), NamesWith({"gate_proj"})), "share a storage");
}

std::vector<double> FrozenValues(const Executable& executable, const ParameterBox& box) {
  const Tensor values = executable.frozen(box);
  std::vector<double> result;
  for (int64_t i = 0; i < values.elements(); ++i) {
    result.push_back(DispatchFloat(values.dtype, [&](auto scalar) {
      using T = decltype(scalar);
      return double(Accumulate<T>(values.as<T>()[i]));
    }));
  }
  return result;
}

// Compute copies are master weights, rounded.
TEST(FrozenValuesTest, AreTheInitialValuesRounded) {
  for (const Precision& precision : {Precision::F64(), Precision::F32(), Precision::BF16()}) {
    const Freezes freezes = NamesWith({"layers.1.", "embed"});
    const auto all = Bind(Record(TinyGpt3(), nullptr, precision));
    const auto some = Bind(Record(TinyGpt3(), freezes, precision));
    std::map<std::string, std::vector<double>> want;
    const FlatBuffer copies =
        precision.weight == precision.master ? FlatBuffer::kMaster : FlatBuffer::kCompute;
    for (const ParameterBox& box : all->program().Parameters()) {
      want[box.name] = ReadFlat(*all, copies, box.flat);
    }
    std::set<std::string> found;
    for (const ParameterBox& box : some->program().FrozenParameters()) {
      EXPECT_EQ(FrozenValues(*some, box), want.at(box.name)) << box.name;
      found.insert(box.name);
    }
    for (const auto& [name, values] : want) EXPECT_EQ(found.count(name), freezes(name)) << name;
  }
}

struct FrozenCase {
  const char* name;
  ModelConfig config;
  Freezes freezes;
  friend void PrintTo(const FrozenCase& c, std::ostream* out) { *out << c.name; }
};

class FrozenGradients : public ::testing::TestWithParam<FrozenCase> {};

std::map<std::string, std::vector<double>> Gradients(Executable& executable, int64_t vocab) {
  executable.WriteStepState(
      {.step = 1, .loss_scale = 1.0 / double(2 * kBatch * kSequence), .seed = 1});
  for (int k = 0; k < 2; ++k) {
    const MicroBatch micro{.first = k == 0, .last = k == 1};
    executable.WriteInput("tokens", 0, Tokens(kBatch * kSequence, vocab, uint64_t(k)));
    executable.WriteInput("targets", 0, Tokens(kBatch * kSequence, vocab, uint64_t(k) + 10));
    executable.Run(Action::kForward, micro);
    executable.Run(Action::kBackward, micro);
  }
  std::map<std::string, std::vector<double>> gradients;
  for (const ParameterBox& box : executable.program().Parameters()) {
    gradients[box.name] = ReadFlat(executable, FlatBuffer::kGradient, box.flat);
  }
  return gradients;
}

TEST_P(FrozenGradients, OfTheOthersAreToTheBitThoseOfAllTrainable) {
  const ModelConfig& config = GetParam().config;
  const int64_t vocab = AsDecoder(config).vocab;
  for (const Zero zero : {Zero::kNone, Zero::kFull}) {
    const auto all = Bind(Record(config, nullptr));
    const auto some = Bind(Record(config, GetParam().freezes, Precision::F64(), zero));
    const auto want = Gradients(*all, vocab), got = Gradients(*some, vocab);
    ASSERT_FALSE(got.empty());
    ASSERT_LT(got.size(), want.size());
    for (const auto& [name, gradient] : want) {
      SCOPED_TRACE(name);
      ASSERT_EQ(got.count(name), GetParam().freezes(name) ? 0u : 1u);
      if (got.count(name) > 0) {
        EXPECT_EQ(got.at(name), gradient);
      }
    }
  }
}

// A product that a pattern divides becomes several, side by side.
class DividedProducts : public ::testing::TestWithParam<FrozenCase> {};

TEST_P(DividedProducts, HaveTheGradientsOfOne) {
  const ModelConfig& config = GetParam().config;
  const int64_t vocab = AsDecoder(config).vocab;
  const auto all = Bind(Record(config, nullptr));
  const auto some = Bind(Record(config, GetParam().freezes));
  const auto want = Gradients(*all, vocab), got = Gradients(*some, vocab);
  int compared = 0;
  for (const auto& [name, gradient] : want) {
    SCOPED_TRACE(name);
    ASSERT_EQ(got.count(name), GetParam().freezes(name) ? 0u : 1u);
    if (got.count(name) == 0) continue;
    ++compared;
    for (size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(got.at(name)[i], gradient[i], 1e-14);
  }
  EXPECT_GT(compared, 0);
}

// Without experts, whose choice a difference may change.
class DividedDenseProducts : public ::testing::TestWithParam<FrozenCase> {};

// In f64, of what stands beside a frozen part.
TEST_P(DividedDenseProducts, MatchCentralDifferences) {
  const ModelConfig& config = GetParam().config;
  const int64_t vocab = AsDecoder(config).vocab;
  const auto executable = Bind(Record(config, GetParam().freezes));
  const auto loss = [&] {
    Gradients(*executable, vocab);
    const StepState state = executable->ReadStepState();
    return state.loss + state.auxiliary_loss;
  };
  const auto gradients = Gradients(*executable, vocab);
  int checked = 0;
  for (const ParameterBox& box : executable->program().Parameters()) {
    if (box.block != 1 || box.name.find("proj") == std::string::npos) continue;
    ++checked;
    double* weights = executable->flat(FlatBuffer::kMaster, box.flat).as<double>();
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < box.flat.elements; i += 7) {
      const double at = weights[i], h = 1e-2;
      const auto loss_at = [&](double x) {
        weights[i] = x;
        return loss();
      };
      const double got = gradients.at(box.name)[size_t(i)];
      const double want =
          (8 * (loss_at(at + h) - loss_at(at - h)) - (loss_at(at + 2 * h) - loss_at(at - 2 * h))) /
          (12 * h);
      weights[i] = at;
      difference += (got - want) * (got - want);
      norm += want * want;
    }
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm)) << box.name;
  }
  EXPECT_GT(checked, 0);
}

std::string NameOf(const ::testing::TestParamInfo<FrozenCase>& info) { return info.param.name; }

const FrozenCase kDense[] = {{"query", TinyLlama(), NamesWith({"q_proj"})},
                             {"value", TinyLlama(), NamesWith({"v_proj"})},
                             {"key", TinyLlama(), NamesWith({"k_proj"})},
                             {"up", TinyLlama(), NamesWith({"up_proj"})}};
INSTANTIATE_TEST_SUITE_P(Dense, DividedDenseProducts, ::testing::ValuesIn(kDense), NameOf);
INSTANTIATE_TEST_SUITE_P(Dense, DividedProducts, ::testing::ValuesIn(kDense), NameOf);
INSTANTIATE_TEST_SUITE_P(Mixtures, DividedProducts,
                         ::testing::Values(FrozenCase{"query_with_head_norm", TinyMoe(),
                                                      NamesWith({"q_proj"})},
                                           FrozenCase{"shared_gate", GroupedMoe(),
                                                      NamesWith({"shared_experts.gate_proj"})}),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(
    Cases, FrozenGradients,
    ::testing::Values(
        FrozenCase{"llama_lower", TinyLlama(), NamesWith({"embed_tokens", "layers.0."})},
        FrozenCase{"llama_matrices", TinyLlama(), NamesWith({"proj", "lm_head", "embed_tokens"})},
        FrozenCase{"llama_norms", TinyLlama(), NamesWith({"norm"})},
        FrozenCase{"llama_all_but_head", TinyLlama(), AllBut({"lm_head"})},
        FrozenCase{"llama_all_but_embedding", TinyLlama(), AllBut({"embed_tokens"})},
        FrozenCase{"llama_all_but_one", TinyLlama(), AllBut({"layers.0.mlp.down_proj"})},
        FrozenCase{"llama_tied", TinyLlama(true), NamesWith({"embed_tokens"})},
        FrozenCase{"gpt3_positions", TinyGpt3(), NamesWith({"wte", "h.0.", "word"})},
        FrozenCase{"gpt3_all_but_biases", TinyGpt3(), AllBut({"bias"})},
        FrozenCase{"gpt3_biases", TinyGpt3(), NamesWith({"bias"})},
        FrozenCase{"moe_experts", GroupedMoe(), NamesWith({".experts."})},
        FrozenCase{"moe_gate_up", GroupedMoe(),
                   [](const std::string& name) {
                     return absl::StrContains(name, "gate_proj") ||
                            absl::StrContains(name, "up_proj");
                   }},
        FrozenCase{"moe_down", TinyMoe(), NamesWith({"down_proj"})},
        FrozenCase{"moe_all_but_experts", TinyMoe(), AllBut({".experts."})},
        FrozenCase{"moe_gates", GroupedMoe(), NamesWith({"gate.weight", "correction_bias"})},
        FrozenCase{"moe_head_norms", TinyMoe(), NamesWith({"q_norm"})},
        FrozenCase{"gpt_oss_experts", TinyOf("gpt_oss"), NamesWith({".experts."})},
        FrozenCase{"gpt_oss_down", TinyOf("gpt_oss"), NamesWith({"down_proj"})},
        FrozenCase{"gpt_oss_biases", TinyOf("gpt_oss"), NamesWith({"bias"})},
        FrozenCase{"gpt_oss_all_but_biases", TinyOf("gpt_oss"), AllBut({"bias"})},
        FrozenCase{"gpt_oss_sinks", TinyOf("gpt_oss"), NamesWith({"sinks"})},
        FrozenCase{"gpt_oss_all_but_sinks", TinyOf("gpt_oss"), AllBut({"sinks"})}),
    NameOf);

}  // namespace
}  // namespace trainyard::testing
