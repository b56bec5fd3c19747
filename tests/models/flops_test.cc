// Proves the FLOPs per token against the published table of conventions (GFLOP per token, four
// digits) and, where the arithmetic is exact, against the formula by hand.
#include "models/arch/flops.h"

#include "gtest/gtest.h"
#include "models/arch/registry.h"
#include "tests/models/conditioned.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

double GigaFlops(const std::string& preset, int64_t sequence, FlopsConvention convention) {
  return FlopsPerToken(FindPreset(preset)->config, sequence, convention).total() / 1e9;
}

// Half a unit of the last printed digit.
struct Row {
  const char* preset;
  double full_4k, full_8k, causal_4k, causal_8k, half_digit;
};
constexpr Row kTable[] = {{"llama3-8b", 51.47, 57.91, 48.25, 51.47, 0.005},
                          {"llama3-70b", 449.2, 481.4, 433.1, 449.2, 0.05},
                          {"llama3.1-405b", 2524, 2625, 2473, 2524, 0.5},
                          {"nemotron4-340b", 2105, 2192, 2061, 2105, 0.5}};

TEST(FlopsTest, ExactAgreesWithTheTable) {
  for (const Row& row : kTable) {
    SCOPED_TRACE(row.preset);
    EXPECT_NEAR(GigaFlops(row.preset, 4096, FlopsConvention::kExact), row.causal_4k,
                row.half_digit);
    EXPECT_NEAR(GigaFlops(row.preset, 8192, FlopsConvention::kExact), row.causal_8k,
                row.half_digit);
  }
}

// The table's causal column leaves routers out; "exact" counts them.
TEST(FlopsTest, ExpertsCountWhereATokenGoesThroughThem) {
  EXPECT_NEAR(GigaFlops("qwen3-30b-a3b", 4096, FlopsConvention::kExact), 23.08, 0.005);
  EXPECT_NEAR(GigaFlops("qwen3-30b-a3b", 8192, FlopsConvention::kExact), 27.92, 0.006);
  EXPECT_NEAR(GigaFlops("qwen3-30b-a3b", 4096, FlopsConvention::kAutoModel), 23.01, 0.005);
  EXPECT_NEAR(GigaFlops("qwen3-30b-a3b", 8192, FlopsConvention::kAutoModel), 27.84, 0.005);

  // Multi-head latent attention, of which AutoModel's formula leaves out the gate.
  EXPECT_NEAR(GigaFlops("deepseek-v3-671b", 4096, FlopsConvention::kExact), 250.5, 0.05);
  EXPECT_NEAR(GigaFlops("deepseek-v3-671b", 8192, FlopsConvention::kExact), 281.2, 0.05);
  EXPECT_NEAR(GigaFlops("deepseek-v3-671b", 4096, FlopsConvention::kAutoModel), 249.8, 0.05);
  EXPECT_NEAR(GigaFlops("deepseek-v3-671b", 8192, FlopsConvention::kAutoModel), 280.5, 0.05);
  EXPECT_NEAR(GigaFlops("kimi-k2", 4096, FlopsConvention::kExact), 205.5, 0.05);
  EXPECT_NEAR(GigaFlops("kimi-k2", 8192, FlopsConvention::kExact), 220.8, 0.05);
  EXPECT_NEAR(GigaFlops("kimi-k2", 4096, FlopsConvention::kAutoModel), 204.5, 0.05);
  EXPECT_NEAR(GigaFlops("kimi-k2", 8192, FlopsConvention::kAutoModel), 219.8, 0.05);

  // A gate of 8, and two experts.
  const Flops mixtral = FlopsPerToken(FindPreset("mixtral-8x7b")->config, 4096);
  EXPECT_DOUBLE_EQ(mixtral.mlp, 32 * 6 * 4096.0 * (3 * 2 * 14336 + 8));
  EXPECT_DOUBLE_EQ(mixtral.attention, 32 * 6 * 4096.0 * (4096 + 1));

  ModelConfig config = TinyMoe();
  AsDecoder(config).moe->shared_experts = 1, AsDecoder(config).moe->shared_ffn = 7;
  const double l = double(AsDecoder(config).layers), h = double(AsDecoder(config).hidden);
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 8).mlp, l * 6 * h * (3 * (2 * 5 + 7) + 6));
}

// Half of the layers count the pairs of a window, token by token; the formulas know of none.
TEST(FlopsTest, WindowsCountThePairsWithin) {
  const double s = 4096, window = 128, layers = 24, h = 2880, heads = 64, groups = 8, d = 64;
  const double all = s * (s + 1) / 2, within = window * (window + 1) / 2 + (s - window) * window;
  const ModelConfig config = FindPreset("gpt-oss-20b")->config;
  const Flops exact = FlopsPerToken(config, 4096);
  EXPECT_DOUBLE_EQ(exact.attention, layers / 2 * 12 * heads * d * (all + within) / s);
  EXPECT_DOUBLE_EQ(exact.mlp, layers * 6 * h * (3 * 4 * h + 32));
  const Flops formula = FlopsPerToken(config, 4096, FlopsConvention::kMegatron);
  EXPECT_DOUBLE_EQ(formula.attention, layers * 6 * heads * d * s);
  EXPECT_DOUBLE_EQ(formula.qkvo, layers * 6 * h * d * (2 * heads + 2 * groups));
  EXPECT_DOUBLE_EQ(formula.mlp, layers * 6 * 3 * h * 4 * h);
  EXPECT_DOUBLE_EQ(formula.output, 6 * 201088 * h);
}

// Of the 26 layers, the sixth, twelfth, eighteenth and twenty-fourth have no window.
TEST(FlopsTest, Gemma3HasAWindowInFiveOfSixLayers) {
  const double h = 1152, f = 6912, heads = 4, groups = 1, d = 256;
  for (const double s : {256.0, 2048.0, 8192.0}) {
    const double w = std::min(s, 512.0);
    const double all = s * (s + 1) / 2, within = w * (w + 1) / 2 + (s - w) * w;
    const Flops flops = FlopsPerToken(FindPreset("gemma3-1b")->config, int64_t(s));
    EXPECT_DOUBLE_EQ(flops.attention, 12 * heads * d * (4 * all + 22 * within) / s);
    EXPECT_DOUBLE_EQ(flops.qkvo, 26 * 6 * h * d * (2 * heads + 2 * groups));
    EXPECT_DOUBLE_EQ(flops.mlp, 26 * 18 * h * f);
    EXPECT_DOUBLE_EQ(flops.output, 6 * 262144 * h);
  }
}

// What belongs to a sample counts once for its tokens. The first products have no input gradient.
// Forward alone, multiply and add as one, is what the paper publishes (arXiv:2212.09748, table 4),
// whose output is twice as wide; products are all of it but 0.02 %.
TEST(FlopsTest, DitCountsConditionsOnceASample) {
  const ModelConfig config = FindPreset("dit-xl-2")->config;
  const double layers = 28, d = 1152, tokens = 256, elements = 16;
  const Flops flops = FlopsPerToken(config, 256);
  EXPECT_DOUBLE_EQ(flops.qkvo, layers * 6 * 4 * d * d);
  EXPECT_DOUBLE_EQ(flops.attention, layers * 12 * d * tokens);
  EXPECT_DOUBLE_EQ(flops.mlp, layers * 6 * 8 * d * d);
  EXPECT_DOUBLE_EQ(flops.output, 6 * d * elements);
  EXPECT_DOUBLE_EQ(flops.other.at("embed"), 4 * d * elements);
  const double of_sample = layers * 6 * 6 * d * d + 6 * 2 * d * d + 6 * d * d + 4 * 256 * d;
  EXPECT_DOUBLE_EQ(flops.other.at("condition"), of_sample / tokens);
  EXPECT_EQ(flops.other.size(), 2u);
  const double first = (elements + 256 / tokens) * d;  // Twice in `flops`, not three times.
  const double forward = flops.total() / 6 + first / 3 + d * elements;
  EXPECT_NEAR(tokens * forward / 1e9, 118.64, 0.02);
}

TEST(FlopsTest, FullAndCausalFormulasAgreeWithTheTable) {
  for (const Row& row : kTable) {
    SCOPED_TRACE(row.preset);
    for (const FlopsConvention causal : {FlopsConvention::kAutoModel, FlopsConvention::kMegatron}) {
      EXPECT_NEAR(GigaFlops(row.preset, 4096, causal), row.causal_4k, row.half_digit);
      EXPECT_NEAR(GigaFlops(row.preset, 8192, causal), row.causal_8k, row.half_digit);
    }
    EXPECT_NEAR(GigaFlops(row.preset, 4096, FlopsConvention::kNemo20), row.full_4k, row.half_digit);
    EXPECT_NEAR(GigaFlops(row.preset, 8192, FlopsConvention::kNemo20), row.full_8k, row.half_digit);
  }
}

// The recorded program counts what the formula says, to the last bit but for the causal triangle's
// diagonal: s + 1 instead of s.
TEST(FlopsTest, ExactEqualsTheFormulaPartByPart) {
  for (const ModelConfig& config : {TinyLlama(), TinyLlama(/*tied=*/true), TinyGpt3(),
                                    TinyAs("qwen2"), TinyAs("qwen3"), TinyAs("nemotron")}) {
    const double s = 8, l = double(AsDecoder(config).layers), h = double(AsDecoder(config).hidden);
    const double d = double(AsDecoder(config).head_dim), a = double(AsDecoder(config).heads),
                 g = double(AsDecoder(config).kv_heads);
    const Flops flops = FlopsPerToken(config, int64_t(s));
    EXPECT_DOUBLE_EQ(flops.qkvo, l * 6 * h * d * (2 * a + 2 * g));
    EXPECT_DOUBLE_EQ(flops.attention, l * 6 * a * d * (s + 1));
    EXPECT_DOUBLE_EQ(flops.mlp, l * (FindFamily(config.family())->gated ? 18 : 12) * h *
                                    double(AsDecoder(config).ffn));
    EXPECT_DOUBLE_EQ(flops.output, 6 * double(AsDecoder(config).vocab) * h);
  }
}

// What the DGX Cloud pages print, per sequence of 8192 tokens: 4.74e14, 3.94e15; and 405b with its
// groups over heads taken as 8/64: 1.2 % above the formula with the model's 8/128.
TEST(FlopsTest, DgxCloudLlama31PrintsThePagesNumbers) {
  const auto per_sequence = [](const char* preset) {
    return GigaFlops(preset, 8192, FlopsConvention::kDgxcLlama31) * 1e9 * 8192;
  };
  EXPECT_NEAR(per_sequence("llama3-8b"), 4.74e14, 0.005e14);
  EXPECT_NEAR(per_sequence("llama3-70b"), 3.94e15, 0.005e15);
  const double with_64 = GigaFlops("llama3.1-405b", 8192, FlopsConvention::kDgxcLlama31);
  const double with_128 = GigaFlops("llama3.1-405b", 8192, FlopsConvention::kNemo20);
  EXPECT_NEAR(with_64 - with_128, 126 * 12 * 16384.0 * 16384.0 * (8.0 / 64 - 8.0 / 128) / 1e9,
              1e-6);
  EXPECT_GT(with_64 / with_128, 1.008);
}

// Nemotron4-15b's page prints 434.5e12 for a sequence of 4096 tokens.
TEST(FlopsTest, DgxCloudNemotron4IgnoresGroupsAndWidth) {
  const ModelConfig config = FindPreset("nemotron4-15b")->config;
  const Flops flops = FlopsPerToken(config, 4096, FlopsConvention::kDgxcNemotron4);
  EXPECT_NEAR(flops.total() * 4096, 434.5e12, 0.05e12);
}

// A part that no convention names counts by its label.
TEST(FlopsTest, PartsOfAnyLabelCount) {
  ModelConfig config = TinyLlama();
  const std::unique_ptr<Model> model = MakeConditioned(AsDecoder(config));
  constexpr int64_t kTokens = 8;
  const Flops flops =
      CountFlops(RecordTraining(*model, {.record = {.sequence = kTokens}}), kTokens);
  // Products with one row, of [hidden, hidden]: forward and both gradients, of an input's row one.
  const double product = 2.0 * double(AsDecoder(config).hidden * AsDecoder(config).hidden);
  const double per_token = product / double(kTokens);
  EXPECT_DOUBLE_EQ(flops.other.at("embed"), 3 * per_token);
  EXPECT_DOUBLE_EQ(flops.other.at("condition"), 2 * (3 + 2) * per_token);
  EXPECT_DOUBLE_EQ(flops.total(), flops.qkvo + flops.attention + flops.mlp + flops.output +
                                      flops.other.at("embed") + flops.other.at("condition"));
}

TEST(FlopsTest, ConventionNamesParseAndWrongOnesAreAnswered) {
  for (const std::string& name : FlopsConventionNames()) {
    EXPECT_EQ(Name(*ParseFlopsConvention(name)), name);
  }
  const absl::Status status = ParseFlopsConvention("exakt").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("did you mean exact?"), absl::string_view::npos);
}

}  // namespace
}  // namespace trainyard::testing
