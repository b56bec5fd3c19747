// Proves the FLOPs per token of the recorded program against closed forms, of every preset and part
// by part, and against published counts (GFLOP per token, four digits).
#include "models/arch/flops.h"

#include "gtest/gtest.h"
#include "models/arch/registry.h"
#include "tests/models/conditioned.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

double GigaFlops(const std::string& preset, int64_t sequence) {
  return FlopsPerToken(FindPreset(preset)->config, sequence).total() / 1e9;
}

// Where published formulas leave routers out, the program counts them.
TEST(FlopsTest, ExpertsCountWhereATokenGoesThroughThem) {
  EXPECT_NEAR(GigaFlops("qwen3-30b-a3b", 4096), 23.08, 0.005);
  EXPECT_NEAR(GigaFlops("qwen3-30b-a3b", 8192), 27.92, 0.006);
  EXPECT_NEAR(GigaFlops("deepseek-v3-671b", 4096), 250.5, 0.05);
  EXPECT_NEAR(GigaFlops("deepseek-v3-671b", 8192), 281.2, 0.05);
  EXPECT_NEAR(GigaFlops("kimi-k2", 4096), 205.5, 0.05);
  EXPECT_NEAR(GigaFlops("kimi-k2", 8192), 220.8, 0.05);

  // The layers of a pattern, with the state of Mamba-2 and with experts of a latent width.
  EXPECT_NEAR(GigaFlops("nemotron3-nano-30b", 4096), 20.04, 0.005);
  EXPECT_NEAR(GigaFlops("nemotron3-nano-30b", 8192), 20.64, 0.005);
  EXPECT_NEAR(GigaFlops("nemotron3-super-120b", 4096), 74.44, 0.005);
  EXPECT_NEAR(GigaFlops("nemotron3-super-120b", 8192), 75.25, 0.005);

  // A gate of 8, and two experts.
  const Flops mixtral = FlopsPerToken(FindPreset("mixtral-8x7b")->config, 4096);
  EXPECT_DOUBLE_EQ(mixtral.mlp, 32 * 6 * 4096.0 * (3 * 2 * 14336 + 8));
  EXPECT_DOUBLE_EQ(mixtral.attention, 32 * 6 * 4096.0 * (4096 + 1));

  ModelConfig config = TinyMoe();
  AsDecoder(config).moe->shared_experts = 1, AsDecoder(config).moe->shared_ffn = 7;
  const double l = double(AsDecoder(config).layers), h = double(AsDecoder(config).hidden);
  EXPECT_DOUBLE_EQ(FlopsPerToken(config, 8).mlp, l * 6 * h * (3 * (2 * 5 + 7) + 6));
}

// A layer of each kind, by the parts of the model.
TEST(FlopsTest, NemotronHCountsEachLayerByItsLetter) {
  const ModelConfig config = TinyOf("nemotron_h");
  const double h = 12, s = 8, inner = 4 * 3, state = 5, latent = 7;
  const Flops flops = FlopsPerToken(config, int64_t(s));
  EXPECT_DOUBLE_EQ(flops.qkvo, 6 * h * 4 * (2 * 4 + 2 * 2));
  EXPECT_DOUBLE_EQ(flops.attention, 6 * 4 * 4 * (s + 1));
  EXPECT_DOUBLE_EQ(flops.mlp,
                   12 * h * 20 + 6 * h * 6 + 12 * h * latent + 12 * h * 4 + 3 * 12 * latent * 6);
  EXPECT_DOUBLE_EQ(flops.other.at("mamba"),
                   6 * h * (2 * inner + 2 * 2 * state + 4) + 6 * inner * h);
  EXPECT_DOUBLE_EQ(flops.other.at("scan"), 6 * inner * state);
  EXPECT_DOUBLE_EQ(flops.output, 6 * 13 * h);
}

// The recorded program of every preset counts what its sizes say.
TEST(FlopsTest, EveryPresetCountsItsClosedForm) {
  for (const std::string& name : PresetNames()) {
    SCOPED_TRACE(name);
    const ModelConfig config = FindPreset(name)->config;
    const ModelFacts facts = FactsOf(config);
    for (int64_t sequence : {100, 4096, 32768}) {
      if (facts.one_sequence) sequence = facts.max_sequence;
      const double flops = FlopsPerToken(config, sequence).total();
      EXPECT_NEAR(flops / CaseOf(config.family()).flops(config, double(sequence)), 1, 1e-12)
          << sequence;
    }
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

// A part of another label counts by its label.
TEST(FlopsTest, PaddingOfTheVocabularyDoesNotCount) {
  const ModelConfig plain = TinyLlama();
  ModelConfig padded = plain;
  AsDecoder(padded).vocab_multiple = 16;
  EXPECT_EQ(FlopsPerToken(padded, 8).total(), FlopsPerToken(plain, 8).total());
  EXPECT_EQ(CountParameters(padded).total, CountParameters(plain).total);
  EXPECT_EQ(CountParameters(padded).active, CountParameters(plain).active);
}

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

}  // namespace
}  // namespace trainyard::testing
