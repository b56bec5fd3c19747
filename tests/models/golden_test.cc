// Proves the architectures against an independent public implementation: logits of tiny models
// whose weights come from common/rng.h (tests/golden/*.golden say how they were made).
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "gtest/gtest.h"
#include "models/families/dit.h"
#include "models/families/gpt_oss.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

struct Golden {
  std::map<std::string, std::vector<int32_t>> integers;  // "tokens", say.
  std::vector<double> outputs;                           // Logits [tokens, vocab], say.
  // Of some files, by the tensors' names.
  struct Gradient {
    double norm, along;  // Its product with Normal(13, HashName(name), i).
  };
  std::map<std::string, Gradient> gradients;
};

Golden Load(const std::string& name) {
  const std::string path = std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/" + name;
  std::ifstream file(path);
  CHECK(file.good()) << path;
  Golden golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    if (line.starts_with("#")) continue;
    if (line.starts_with("gradient")) {
      std::string name;
      words >> name >> name;
      Golden::Gradient& gradient = golden.gradients[name];
      words >> gradient.norm >> gradient.along;
    } else if (std::isalpha(line[0]) != 0) {
      std::string name;
      words >> name;
      for (int32_t integer; words >> integer;) golden.integers[name].push_back(integer);
    } else {
      for (double output; words >> output;) golden.outputs.push_back(output);
    }
  }
  return golden;
}

// The weights of the other side.
void WriteWeights(Executable& executable) {
  for (const ParameterBox& box : executable.program().Parameters()) {
    double* weights = executable.flat(FlatBuffer::kMaster, box.flat).as<double>();
    const bool gain = box.init.kind == Init::Kind::kOnes;
    for (int64_t i = 0; i < box.flat.elements; ++i) {
      const double x = Normal(11, HashName(box.name.c_str()), uint64_t(i));
      weights[i] = gain ? 1 + 0.1 * x : 0.3 * x;
    }
  }
  executable.Run(Action::kPrepare);
}

// Two sequences.
RecordOptions OptionsOf(const std::vector<int32_t>& tokens) {
  return {.precision = Precision::F64(), .micro_batch = 2, .sequence = int64_t(tokens.size()) / 2};
}

std::vector<double> Logits(const ModelConfig& config, const std::vector<int32_t>& tokens) {
  const auto executable = Bind(RecordInference(*CreateModel(config), OptionsOf(tokens)));
  WriteWeights(*executable);
  executable->WriteInput("tokens", 0, tokens);
  executable->Run(Action::kForward);
  std::vector<double> logits(tokens.size() * size_t(AsDecoder(config).vocab));
  executable->ReadOutput("logits", 0, logits.data(), logits.size() * sizeof(double));
  return logits;
}

void ExpectClose(const std::vector<double>& got, const std::vector<double>& want,
                 double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(got[i] - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  EXPECT_LE(std::sqrt(difference / norm), tolerance);
}

// By default the tolerance is that of another side that takes norms, softmax and rotations in f32:
// a few of its 1.2e-7.
void ExpectGolden(const ModelConfig& config, const std::string& name, double tolerance = 1e-6) {
  const Golden golden = Load(name);
  ExpectClose(Logits(config, golden.integers.at("tokens")), golden.outputs, tolerance);
}

// After the backward pass. A gradient that is zero but for rounding is one beside the largest.
void ExpectGradients(const Executable& executable, const Golden& golden, double tolerance) {
  double largest = 0;
  for (const auto& [name, gradient] : golden.gradients) largest = std::max(largest, gradient.norm);
  size_t found = 0;
  for (const ParameterBox& box : executable.program().Parameters()) {
    SCOPED_TRACE(box.name);
    const auto it = golden.gradients.find(box.name);
    ASSERT_TRUE(it != golden.gradients.end());
    double norm = 0, along = 0;
    const std::vector<double> gradient = ReadFlat(executable, FlatBuffer::kGradient, box.flat);
    for (size_t i = 0; i < gradient.size(); ++i) {
      norm += gradient[i] * gradient[i];
      along += gradient[i] * Normal(13, HashName(box.name.c_str()), uint64_t(i));
    }
    norm = std::sqrt(norm);
    const bool rounding = it->second.norm < 1e-14 * largest;
    const double allowed = tolerance * (rounding ? 1e-6 * largest : it->second.norm);
    EXPECT_NEAR(norm, it->second.norm, allowed);
    EXPECT_NEAR(along, it->second.along, allowed);
    ++found;
  }
  EXPECT_EQ(found, golden.gradients.size());
}

void RunStep(Executable& executable, double tokens) {
  executable.WriteStepState({.step = 1, .loss_scale = 1 / tokens, .seed = 1});
  const MicroBatch micro{.first = true, .last = true};
  executable.Run(Action::kForward, micro);
  executable.Run(Action::kBackward, micro);
}

// Of the mean cross-entropy of targets RandomBits(6, 0, i) % vocab.
void ExpectGoldenGradients(const ModelConfig& config, const std::string& name, double tolerance) {
  const Golden golden = Load(name);
  const std::vector<int32_t>& tokens = golden.integers.at("tokens");
  const auto executable =
      Bind(RecordTraining(*CreateModel(config), {.record = OptionsOf(tokens), .optimizer = {}}));
  WriteWeights(*executable);
  executable->WriteInput("tokens", 0, tokens);
  executable->WriteInput("targets", 0, Tokens(int64_t(tokens.size()), AsDecoder(config).vocab, 6));
  RunStep(*executable, double(tokens.size()));
  ExpectGradients(*executable, golden, tolerance);
}

// --- DiT, whose golden file has images [channels, height, width].

constexpr int64_t kSamples = 3;

// Where element `e` of token `t` lies in an image. Elements are (channel, row, column) of a patch,
// or (row, column, channel).
int64_t PlaceOf(const DitConfig& c, int64_t t, int64_t e, bool channel_first) {
  const int64_t p = c.patch_size, in_patch = channel_first ? e % (p * p) : e / c.in_channels;
  const int64_t channel = channel_first ? e / (p * p) : e % c.in_channels;
  const int64_t row = t / c.grid() * p + in_patch / p, column = t % c.grid() * p + in_patch % p;
  return (channel * c.sample_size + row) * c.sample_size + column;
}

// The tokens of all samples' images of Normal(seed, 0, i).
std::vector<float> TokensOf(const DitConfig& c, uint64_t seed, bool channel_first) {
  const int64_t tokens = c.grid() * c.grid(), elements = c.token_elements();
  std::vector<float> values;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    for (int64_t i = 0; i < tokens * elements; ++i) {
      const int64_t place = PlaceOf(c, i / elements, i % elements, channel_first);
      values.push_back(float(Normal(seed, 0, uint64_t(sample * tokens * elements + place))));
    }
  }
  return values;
}

void WriteInputs(Executable& executable, const DitConfig& c, const Golden& golden) {
  executable.WriteInput("patches", 0, TokensOf(c, 5, /*channel_first=*/true));
  executable.WriteInput("time", 0, golden.integers.at("times"));
  executable.WriteInput("label", 0, golden.integers.at("labels"));
}

TEST(GoldenTest, DitPredictionsAndGradientsAreThoseOfThePublicImplementation) {
  const DitConfig c{.layers = 3,
                    .hidden = 12,
                    .ffn = 48,
                    .heads = 3,
                    .head_dim = 4,
                    .in_channels = 3,
                    .sample_size = 6,
                    .patch_size = 2,
                    .num_classes = 7,
                    .norm_eps = 1e-3};
  const ModelConfig config("dit", c);
  const Golden golden = Load("dit.golden");
  const int64_t tokens = c.grid() * c.grid(), elements = c.token_elements();
  const RecordOptions options{
      .precision = Precision::F64(), .micro_batch = kSamples, .sequence = tokens};

  const auto inference = Bind(RecordInference(*CreateModel(config), options));
  WriteWeights(*inference);
  WriteInputs(*inference, c, golden);
  inference->Run(Action::kForward);
  std::vector<double> found(size_t(kSamples * tokens * elements)), images(found.size());
  inference->ReadOutput("prediction", 0, found.data(), found.size() * sizeof(double));
  for (int64_t i = 0; i < int64_t(found.size()); ++i) {
    const int64_t t = i / elements, image = t / tokens * tokens * elements;
    images[size_t(image + PlaceOf(c, t % tokens, i % elements, /*channel_first=*/false))] =
        found[size_t(i)];
  }
  ExpectClose(images, golden.outputs, 1e-8);

  const auto training =
      Bind(RecordTraining(*CreateModel(config), {.record = options, .optimizer = {}}));
  WriteWeights(*training);
  WriteInputs(*training, c, golden);
  training->WriteInput("target", 0, TokensOf(c, 6, /*channel_first=*/false));
  RunStep(*training, double(kSamples * tokens));
  ExpectGradients(*training, golden, 1e-7);
}

TEST(GoldenTest, LlamaLogitsAreThoseOfThePublicImplementation) {
  ModelConfig config = TinyLlama();
  AsDecoder(config).hidden = 16;
  AsDecoder(config).ffn = 24;
  AsDecoder(config).rope_base = 10'000;  // The only one that the other implementation has.
  AsDecoder(config).vocab = 11;
  ExpectGolden(config, "llama_logits.golden");
}

// The other side is an implementation of its own in f64 (make_soft_cap.py), which gives the logits
// of llama_logits.golden without the cap.
TEST(GoldenTest, LlamaLogitsWithCappedAttentionAreThoseOfAnotherImplementation) {
  ModelConfig config = TinyLlama();
  AsDecoder(config).hidden = 16;
  AsDecoder(config).ffn = 24;
  AsDecoder(config).rope_base = 10'000;
  AsDecoder(config).vocab = 11;
  AsDecoder(config).attention_soft_cap = 0.75;
  ExpectGolden(config, "llama_soft_cap.golden", 1e-8);
}

TEST(GoldenTest, Qwen3MoeLogitsAreThoseOfThePublicImplementation) {
  ModelConfig config = TinyMoe();
  AsDecoder(config).vocab = 11;
  ExpectGolden(config, "qwen3_moe_logits.golden");
}

// A third of the units are beyond their limits; layers 0 and 2 have windows shorter than the
// sequences. The other side computes all in f64 (make_gpt_oss.py).
TEST(GoldenTest, GptOssLogitsAndGradientsAreThoseOfThePublicImplementation) {
  ModelConfig config = TinyOf("gpt_oss");
  GptOssConfig& c = config.As<GptOssConfig>();
  c.layers = 4;
  c.head_dim = 8;
  c.vocab = 11;
  c.moe = MoeConfig{.experts = 4, .top_k = 2, .expert_ffn = 5};
  c.swiglu_limit = 1;
  c.yarn_factor = 4;
  ExpectGolden(config, "gpt_oss.golden", 1e-8);
  ExpectGoldenGradients(config, "gpt_oss.golden", 1e-7);
}

TEST(GoldenTest, Gpt3LogitsAreThoseOfThePublicImplementation) {
  ModelConfig config = TinyGpt3();
  AsDecoder(config).vocab = 11;
  ExpectGolden(config, "gpt3_logits.golden");
}

}  // namespace
}  // namespace trainyard::testing
