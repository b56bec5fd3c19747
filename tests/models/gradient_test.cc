// Proves the engine's gradients: for whole architectures in f64, every parameter's gradient as the
// recorded backward pass computes it against central differences of the loss; and that
// micro-batches add up to the batch that they are parts of.
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kBatch = 2, kSequence = 5;

class ArchitectureGradient : public ::testing::TestWithParam<ModelVariant> {
 protected:
  void SetUp() override {
    uint64_t seed = 7;
    for (const InputSpec& input : CreateModel(config())->inputs()) {
      inputs_[input.name] = MakeInput(input, kBatch, kSequence, seed++);
    }
    const auto targets = inputs_.find("targets");
    if (targets == inputs_.end()) return;
    std::get<std::vector<int32_t>>(targets->second)[3] = -1;
    counted_ -= 1;
  }
  const ModelConfig& config() const { return GetParam().config; }
  static TrainingOptions Options(int64_t micro_batch,
                                 const Precision& precision = Precision::F64()) {
    TrainingOptions options = {.record = {.precision = precision,
                                          .micro_batch = micro_batch,
                                          .sequence = kSequence,
                                          .expert_rows = GetParam().expert_rows},
                               .optimizer = {}};
    if (GetParam().adapted || GetParam().adapted_experts) {
      options.record.adapter = {.rank = 3, .scale = 1.5};
      if (GetParam().adapted_experts) {
        options.record.adapter.adapts = [](absl::string_view) { return true; };
      }
      options.frozen = [](const ParameterSpec& spec) { return !IsLowRank(spec.name); };
    }
    return options;
  }

  // What is trained for, of the whole batch; with_backward leaves its gradient, too.
  double Step(Executable& executable, int micro_batches, bool with_backward) {
    StepState state{.step = 1, .loss_scale = 1.0 / double(counted_), .seed = 1};
    executable.WriteStepState(state);
    for (int k = 0; k < micro_batches; ++k) {
      const MicroBatch micro{
          .first = k == 0, .last = k == micro_batches - 1, .validation = !with_backward};
      for (const auto& [name, data] : inputs_) {
        std::visit(
            [&, name = name](const auto& all) {
              const size_t part = all.size() / size_t(micro_batches);
              const auto of_part = std::span(all).subspan(size_t(k) * part, part);
              // No model here reads f64.
              if constexpr (!std::is_same_v<decltype(of_part), const std::span<const double>>) {
                executable.WriteInput(name, 0, of_part);
              }
            },
            data);
      }
      executable.Run(Action::kForward, micro);
      if (with_backward) executable.Run(Action::kBackward, micro);
    }
    state = executable.ReadStepState();
    return state.loss + state.auxiliary_loss;
  }

  std::map<std::string, InputData> inputs_;
  int64_t counted_ = kBatch * kSequence;  // Tokens that the loss counts.
};

void Enlarge(double* values, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    values[i] =
        values[i] == 1 ? 1 + 0.1 * Normal(3, 0, uint64_t(i)) : 0.3 * Normal(4, 0, uint64_t(i));
  }
}

// Initial weights are small, which hides errors behind tiny gradients: scale them up.
void Enlarge(Executable& executable) {
  const int64_t elements = executable.program().flat_elements;
  Enlarge(executable.flat(FlatBuffer::kMaster, {.elements = elements}).as<double>(), elements);
  for (const ParameterBox& box : executable.program().FrozenParameters()) {
    Enlarge(executable.frozen(box).as<double>(), box.shape.elements());
  }
}

TEST_P(ArchitectureGradient, EveryParameterMatchesCentralDifferences) {
  const auto executable = Bind(RecordTraining(*CreateModel(config()), Options(kBatch)));
  Enlarge(*executable);
  const double loss = Step(*executable, 1, /*with_backward=*/true);
  if (const int64_t vocab = FactsOf(config()).vocab; vocab > 0) {
    EXPECT_NEAR(loss, std::log(double(vocab)), 2);
  }

  int idle_experts = 0;  // Their tensors.
  for (const ParameterBox& box : executable->program().Parameters()) {
    if (box.state) continue;  // Its "gradient" is none of the loss.
    SCOPED_TRACE(box.name);
    const std::vector<double> got = ReadFlat(*executable, FlatBuffer::kGradient, box.flat);
    double* weights = executable->flat(FlatBuffer::kMaster, box.flat).as<double>();
    double difference = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double at = weights[i], h = 2.5e-4;
      const auto loss_at = [&](double x) {
        weights[i] = x;
        return Step(*executable, 1, /*with_backward=*/false);
      };
      // Of fourth order: the error is about h^4, and rounding's 1e-16 / h.
      const double want =
          (8 * (loss_at(at + h) - loss_at(at - h)) - (loss_at(at + 2 * h) - loss_at(at - 2 * h))) /
          (12 * h);
      weights[i] = at;
      difference += (got[i] - want) * (got[i] - want);
      norm += want * want;
    }
    // It adds the same to all scores of a row, which softmax leaves as they are.
    if (box.name.ends_with("to_k.bias")) {
      EXPECT_LE(std::sqrt(difference), 1e-10);
      continue;
    }
    // Nobody need choose an expert.
    const bool idle = norm == 0 && box.name.find(".experts.") != std::string::npos;
    idle_experts += idle;
    EXPECT_TRUE(norm > 0 || idle);
    EXPECT_LE(std::sqrt(difference), 1e-6 * std::sqrt(norm));
  }
  EXPECT_LE(idle_experts, 3 * 2) << "of the 12 of TinyMoe: nothing is proved";
}

TEST_P(ArchitectureGradient, TwoMicroBatchesEqualOneBatch) {
  ModelConfig config = this->config();
  if (FactsOf(config).experts)
    AsDecoder(config).moe->aux_loss = 0;  // The load is balanced within a micro-batch.
  const auto whole = Bind(RecordTraining(*CreateModel(config), Options(kBatch)));
  const auto parts = Bind(RecordTraining(*CreateModel(config), Options(kBatch / 2)));
  ASSERT_NEAR(Step(*whole, 1, true), Step(*parts, 2, true), 1e-12);
  Step(*parts, 2, true);  // Again: what the last step left must not matter.
  for (const ParameterBox& box : whole->program().Parameters()) {
    SCOPED_TRACE(box.name);
    const auto a = ReadFlat(*whole, FlatBuffer::kGradient, box.flat);
    const auto b = ReadFlat(*parts, FlatBuffer::kGradient, box.flat);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
  }
}

// The precisions that training uses: same weights, same batch, gradients close in the norm.
TEST_P(ArchitectureGradient, LowerPrecisionsAreCloseToDouble) {
  const auto exact = Bind(RecordTraining(*CreateModel(config()), Options(kBatch)));
  const double loss = Step(*exact, 1, true);
  const FlatRange all{.elements = exact->program().flat_elements};
  const auto want = ReadFlat(*exact, FlatBuffer::kGradient, all);
  for (const auto& [precision, tolerance] :
       {std::pair{Precision::F32(), 1e-5}, std::pair{Precision::BF16(), 3e-2}}) {
    SCOPED_TRACE(Name(precision.activation));
    const auto low = Bind(RecordTraining(*CreateModel(config()), Options(kBatch, precision)));
    EXPECT_NEAR(Step(*low, 1, true), loss, tolerance);
    const auto got = ReadFlat(*low, FlatBuffer::kGradient, all);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      norm += want[i] * want[i];
    }
    EXPECT_LE(std::sqrt(difference / norm), tolerance);
  }
}

std::vector<ModelVariant> Variants() {
  std::vector<ModelVariant> all;
  for (const FamilyCase& family : FamilyCases()) {
    all.push_back({family.name, family.tiny()});
    if (family.variants == nullptr) continue;
    for (ModelVariant variant : family.variants()) {
      variant.name = absl::StrCat(family.name, "_", variant.name);
      all.push_back(std::move(variant));
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, ArchitectureGradient, ::testing::ValuesIn(Variants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trainyard::testing
