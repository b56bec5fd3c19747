// Proves that the output projection and its loss, chunk by chunk, are those of the whole logits,
// computed here apart: loss and both gradients, on one rank and with the vocabulary divided; and
// that a training step's forward pass leaves all of it to backward, validation's gives the loss.
#include <cmath>
#include <map>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "models/program/op.h"
#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"
#include "tests/models/tiny.h"
#include "tests/testing/ranks.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kWidth = 5;
constexpr double kScale = 0.125;

struct Sizes {
  int64_t tokens, vocab;
  int ranks;
  int64_t chunk;
  friend void PrintTo(const Sizes& s, std::ostream* out) {
    *out << s.tokens << " tokens of " << s.vocab << " on " << s.ranks << " ranks";
  }
};

// x is an embedding of as many rows as there are tokens, each of which takes its own: the table's
// gradient is that of x.
Program Record(const Sizes& sizes, const Precision& precision, int rank) {
  Recorder recorder(precision, {.tensor = sizes.ranks, .rank = rank}, /*training=*/true);
  const auto parameter = [&](const char* name, const Shape& shape, Shard shard) {
    return recorder.Parameter(
        {.name = name, .shape = shape, .shard = shard, .init = Init::Normal(1), .decay = true});
  };
  const Value tokens =
      recorder.Input("tokens", {sizes.tokens / sizes.ranks}, DType::kI32, kTensorAxes);
  const Value targets = recorder.Input("targets", {sizes.tokens}, DType::kI32, kTensorAxes);
  const Value table = parameter("table", {sizes.tokens, kWidth}, Shard::None());
  const Value weight = parameter("weight", {sizes.vocab, kWidth}, Shard::Rows(kTensorAxes));
  ops::LinearCrossEntropy(recorder, ops::Embedding(recorder, table, tokens), weight, targets,
                          kTensorAxes);
  RecordBackward(recorder);
  LayOutParameters(recorder.mutable_program());
  RecordInitialization(recorder);
  return std::move(recorder).Finish();
}

// Every third is not counted.
std::vector<int32_t> Targets(const Sizes& sizes) {
  std::vector<int32_t> targets = Tokens(sizes.tokens, sizes.vocab, 3);
  for (size_t t = 2; t < targets.size(); t += 3) targets[t] = -1;
  return targets;
}

struct Result {
  double loss = 0;
  std::vector<double> dx, dw;
};

// From logits that are whole, in f64.
Result OfWholeLogits(const Sizes& sizes, const std::vector<double>& x,
                     const std::vector<double>& w) {
  const std::vector<int32_t> targets = Targets(sizes);
  Result result{0, std::vector<double>(x.size()), std::vector<double>(w.size())};
  const size_t vocab = size_t(sizes.vocab), width = size_t(kWidth);
  std::vector<double> logits(vocab);
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    double sum = 0;
    for (size_t v = 0; v < vocab; ++v) {
      logits[v] = 0;
      for (size_t d = 0; d < width; ++d) logits[v] += x[t * width + d] * w[v * width + d];
      sum += std::exp(logits[v]);
    }
    result.loss += kScale * (std::log(sum) - logits[size_t(targets[t])]);
    for (size_t v = 0; v < vocab; ++v) {
      const double dlogit = kScale * (std::exp(logits[v]) / sum - (v == size_t(targets[t])));
      for (size_t d = 0; d < width; ++d) {
        result.dx[t * width + d] += dlogit * w[v * width + d];
        result.dw[v * width + d] += dlogit * x[t * width + d];
      }
    }
  }
  return result;
}

// A parameter, or its gradient, of this rank.
std::vector<double> Read(const Executable& executable, const char* name, bool gradient) {
  const Program& program = executable.program();
  for (const ParameterStorage& storage : program.storages) {
    if (storage.parameters.front().name != name) continue;
    const FlatBuffer buffer =
        gradient ? program.gradient_buffer(storage.flat) : program.weight_buffer(storage.flat);
    return ReadFlat(executable, buffer, storage.flat);
  }
  CHECK(false) << "no " << name;
  std::abort();
}

// Two micro-batches, so that the second adds to the first's gradients: half of what is there then.
struct Trained {
  Result got;
  std::vector<double> x, w;
};
Trained Train(const Sizes& sizes, const Precision& precision) {
  const size_t slice = size_t(sizes.vocab * kWidth / sizes.ranks);
  Trained all{{0, std::vector<double>(size_t(sizes.tokens * kWidth)),
               std::vector<double>(size_t(sizes.vocab * kWidth))},
              {},
              std::vector<double>(size_t(sizes.vocab * kWidth))};
  std::mutex mutex;
  const auto errors = RunRanks(sizes.ranks, [&](Collective& group) {
    CollectiveTable collectives;
    if (sizes.ranks > 1) collectives[{Stream::kCompute, Axis::kTensor}] = &group;
    const auto executable =
        Bind(Record(sizes, precision, group.rank()), /*seed=*/5, /*slots=*/1, collectives);
    std::vector<int32_t> tokens;
    for (int64_t t = 0; t < sizes.tokens / sizes.ranks; ++t) {
      tokens.push_back(int32_t(group.rank() * sizes.tokens / sizes.ranks + t));
    }
    executable->WriteInput("tokens", 0, tokens);
    executable->WriteInput("targets", 0, Targets(sizes));
    executable->WriteStepState({.step = 1, .loss_scale = kScale / 2});
    for (const bool first : {true, false}) {
      executable->Run(Action::kForward, {.first = first});
      executable->Run(Action::kBackward, {.first = first});
    }
    const std::lock_guard lock(mutex);
    all.got.loss += executable->ReadStepState().loss;
    const std::vector<double> dx = Read(*executable, "table", true);
    for (size_t i = 0; i < dx.size(); ++i) all.got.dx[i] += dx[i];  // Of other ranks' rows: zero.
    all.x = Read(*executable, "table", false);
    const auto gather = [&](std::vector<double>& whole, bool gradient) {
      const std::vector<double> mine = Read(*executable, "weight", gradient);
      std::copy(mine.begin(), mine.end(), whole.begin() + long(size_t(group.rank()) * slice));
    };
    gather(all.w, false);
    gather(all.got.dw, true);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return all;
}

double Distance(const std::vector<double>& got, const std::vector<double>& want) {
  CHECK(got.size() == want.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / norm);
}

class LinearCrossEntropyTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(LinearCrossEntropyTest, GivesLossAndGradientsOfTheWholeLogits) {
  const Sizes& sizes = GetParam();
  for (const auto& [precision, tolerance] :
       {std::pair{Precision::F64(), 1e-12},
        std::pair{Precision::F32(), Tolerance(DType::kF32, sizes.tokens * sizes.vocab)},
        std::pair{Precision::BF16(), Tolerance(DType::kBF16, sizes.vocab)},
        std::pair{Precision::BF16().WithRoundedLogits(), Tolerance(DType::kBF16, sizes.vocab)}}) {
    SCOPED_TRACE(absl::StrCat(Name(precision.activation), ", logits ", Name(precision.logits)));
    const auto [got, x, w] = Train(sizes, precision);
    const Result want = OfWholeLogits(sizes, x, w);
    EXPECT_NEAR(got.loss, want.loss, tolerance * want.loss);
    EXPECT_LE(Distance(got.dx, want.dx), tolerance);
    EXPECT_LE(Distance(got.dw, want.dw), tolerance);
  }
}

TEST_P(LinearCrossEntropyTest, HasTheChunksOfItsSize) {
  const Program program = Record(GetParam(), Precision::F64(), 0);
  int chunked = 0;
  for (const Instance& instance : program.instances) {
    if (!absl::StartsWith(instance.op->name(), "linear_cross_entropy")) continue;
    const std::string chunk = "chunk=" + std::to_string(GetParam().chunk);
    EXPECT_THAT(instance.op->attributes(), ::testing::StartsWith(chunk));
    ++chunked;
  }
  EXPECT_EQ(chunked, 2) << "validation's and backward's";
}

// One chunk of one row, of few; chunks of which the last is short, of as many rows as are worth
// while (401, 401, 399) or fit into 16 MiB (601, 601; 602, 601).
INSTANTIATE_TEST_SUITE_P(Sizes, LinearCrossEntropyTest,
                         ::testing::Values(Sizes{1, 2, 1, 1}, Sizes{7, 12, 1, 7},
                                           Sizes{1201, 12300, 1, 401}, Sizes{6, 4, 2, 6},
                                           Sizes{1202, 4200, 2, 601}, Sizes{1203, 6300, 3, 602}));

// A chunk of rounded logits has more rows, and its gradient takes the memory of the logits.
TEST(LinearCrossEntropy, RoundedLogitsTakeHalfTheMemoryAndGiveItToTheirGradient) {
  const Sizes sizes{1300, 12300, 1, 0};
  const auto shapes = [&](const Precision& precision) {
    const Program program = Record(sizes, precision, 0);
    std::map<std::string, std::pair<DType, int64_t>> shapes;
    for (const Instance& instance : program.instances) {
      if (instance.op->name() != "linear_cross_entropy_backward") continue;
      for (const Value value : instance.outputs) {
        const ValueInfo& info = program.info(value);
        shapes[info.name.substr(info.name.rfind('.') + 1)] = {info.dtype, info.shape[0]};
      }
    }
    return shapes;
  };
  const auto wide = shapes(Precision::BF16());
  EXPECT_EQ(wide.at("logits"), std::pair(DType::kF32, int64_t{434}));
  EXPECT_EQ(wide.at("dlogits"), std::pair(DType::kBF16, int64_t{434}));
  const auto rounded = shapes(Precision::BF16().WithRoundedLogits());
  EXPECT_EQ(rounded.at("logits"), std::pair(DType::kBF16, int64_t{650}));
  EXPECT_FALSE(rounded.contains("dlogits"));
}

// A preference is learnt from differences of log-probabilities, which rounding would hide.
TEST(LinearCrossEntropy, LogProbabilitiesAreNotRounded) {
  Recorder recorder(Precision::BF16().WithRoundedLogits(), {}, /*training=*/true);
  const Value x = recorder.Input("x", {4, 8}, DType::kBF16, {});
  const Value weight = recorder.Parameter({.name = "weight", .shape = {16, 8}});
  ops::LinearLogProbs(recorder, x, weight, recorder.Input("targets", {4}, DType::kI32, {}), {});
  const Program& program = recorder.program();
  const Instance& instance = program.instances.back();
  ASSERT_EQ(instance.op->name(), "linear_log_probs");
  for (const Value value : instance.outputs) {
    EXPECT_EQ(program.info(value).dtype, DType::kF32) << program.info(value);
  }
}

TEST(LinearCrossEntropy, ForwardGivesTheLossInValidationAlone) {
  const Sizes sizes{7, 12, 1, 7};
  const auto executable = Bind(Record(sizes, Precision::F64(), 0));
  executable->WriteInput("tokens", 0, std::vector<int32_t>(7, 1));
  executable->WriteInput("targets", 0, Targets(sizes));
  const FlatRange all{.elements = executable->program().flat_elements};
  const auto loss_after = [&](Action action, bool validation) {
    executable->WriteStepState({.loss_scale = kScale});
    executable->Run(action, {.validation = validation});
    return executable->ReadStepState().loss;
  };
  EXPECT_EQ(loss_after(Action::kForward, /*validation=*/false), 0);
  const std::vector<double> before = ReadFlat(*executable, FlatBuffer::kGradient, all);
  const double validated = loss_after(Action::kForward, /*validation=*/true);
  EXPECT_EQ(ReadFlat(*executable, FlatBuffer::kGradient, all), before);
  EXPECT_GT(validated, 0);
  EXPECT_EQ(loss_after(Action::kBackward, /*validation=*/false), validated);
}

}  // namespace
}  // namespace trainyard::testing
