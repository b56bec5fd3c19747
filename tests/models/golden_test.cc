// Proves the architectures against an independent public implementation: logits of tiny models
// whose weights come from common/rng.h (tests/golden/*.golden say how they were made).
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "gtest/gtest.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

struct Golden {
  std::vector<int32_t> tokens;
  std::vector<double> logits;  // [tokens, vocab]
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
    if (line.starts_with("tokens")) {
      words.ignore(6);
      for (int32_t token; words >> token;) golden.tokens.push_back(token);
    } else if (line.starts_with("gradient")) {
      std::string name;
      words >> name >> name;
      Golden::Gradient& gradient = golden.gradients[name];
      words >> gradient.norm >> gradient.along;
    } else {
      for (double logit; words >> logit;) golden.logits.push_back(logit);
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

// By default the tolerance is that of another side that takes norms, softmax and rotations in f32:
// a few of its 1.2e-7.
void ExpectGolden(const ModelConfig& config, const std::string& name, double tolerance = 1e-6) {
  const Golden golden = Load(name);
  const std::vector<double> logits = Logits(config, golden.tokens);
  ASSERT_EQ(logits.size(), golden.logits.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    difference += std::pow(logits[i] - golden.logits[i], 2);
    norm += std::pow(golden.logits[i], 2);
  }
  EXPECT_LE(std::sqrt(difference / norm), tolerance);
}

// Of the mean cross-entropy of targets RandomBits(6, 0, i) % vocab.
void ExpectGoldenGradients(const ModelConfig& config, const std::string& name, double tolerance) {
  const Golden golden = Load(name);
  const auto executable =
      Bind(RecordTraining(*CreateModel(config), {.record = OptionsOf(golden.tokens), .adamw = {}}));
  WriteWeights(*executable);
  const double tokens = double(golden.tokens.size());
  executable->WriteStepState({.step = 1, .loss_scale = 1 / tokens, .seed = 1});
  executable->WriteInput("tokens", 0, golden.tokens);
  executable->WriteInput("targets", 0,
                         Tokens(int64_t(golden.tokens.size()), AsDecoder(config).vocab, 6));
  const MicroBatch micro{.first = true, .last = true};
  executable->Run(Action::kForward, micro);
  executable->Run(Action::kBackward, micro);
  size_t found = 0;
  for (const ParameterBox& box : executable->program().Parameters()) {
    SCOPED_TRACE(box.name);
    const auto it = golden.gradients.find(box.name);
    ASSERT_TRUE(it != golden.gradients.end());
    double norm = 0, along = 0;
    const std::vector<double> gradient = ReadFlat(*executable, FlatBuffer::kGradient, box.flat);
    for (size_t i = 0; i < gradient.size(); ++i) {
      norm += gradient[i] * gradient[i];
      along += gradient[i] * Normal(13, HashName(box.name.c_str()), uint64_t(i));
    }
    norm = std::sqrt(norm);
    EXPECT_NEAR(norm, it->second.norm, tolerance * it->second.norm);
    EXPECT_NEAR(along, it->second.along, tolerance * it->second.norm);
    ++found;
  }
  EXPECT_EQ(found, golden.gradients.size());
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
  ModelConfig config = TinyGptOss();
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
