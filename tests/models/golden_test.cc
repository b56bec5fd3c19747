// Proves the architectures against an independent public implementation: logits of tiny models
// whose weights come from common/rng.h (tests/golden/*.golden say how they were made).
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

struct Golden {
  std::vector<int32_t> tokens;
  std::vector<double> logits;  // [tokens, vocab]
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
    } else {
      for (double logit; words >> logit;) golden.logits.push_back(logit);
    }
  }
  return golden;
}

std::vector<double> Logits(const ModelConfig& config, const std::vector<int32_t>& tokens) {
  const auto executable = Bind(RecordInference(
      *CreateModel(config),
      {.precision = Precision::F64(), .micro_batch = 2, .sequence = int64_t(tokens.size()) / 2}));
  for (const ParameterBox& box : executable->program().Parameters()) {
    double* weights = executable->flat(FlatBuffer::kMaster, box.flat).as<double>();
    const bool gain = box.init.kind == Init::Kind::kOnes;
    for (int64_t i = 0; i < box.flat.elements; ++i) {
      const double x = Normal(11, HashName(box.name.c_str()), uint64_t(i));
      weights[i] = gain ? 1 + 0.1 * x : 0.3 * x;
    }
  }
  executable->Run(Action::kPrepare);
  executable->WriteInput("tokens", 0, tokens);
  executable->Run(Action::kForward);
  std::vector<double> logits(tokens.size() * size_t(AsDecoder(config).vocab));
  executable->ReadOutput("logits", 0, logits.data(), logits.size() * sizeof(double));
  return logits;
}

void ExpectGolden(const ModelConfig& config, const std::string& name) {
  const Golden golden = Load(name);
  const std::vector<double> logits = Logits(config, golden.tokens);
  ASSERT_EQ(logits.size(), golden.logits.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    difference += std::pow(logits[i] - golden.logits[i], 2);
    norm += std::pow(golden.logits[i], 2);
  }
  // The other side takes norms, softmax and rotations in f32: a few of its 1.2e-7.
  EXPECT_LE(std::sqrt(difference / norm), 1e-6);
}

TEST(GoldenTest, LlamaLogitsAreThoseOfThePublicImplementation) {
  ModelConfig config = TinyLlama();
  AsDecoder(config).hidden = 16;
  AsDecoder(config).ffn = 24;
  AsDecoder(config).rope_base = 10'000;  // The only one that the other implementation has.
  AsDecoder(config).vocab = 11;
  ExpectGolden(config, "llama_logits.golden");
}

TEST(GoldenTest, Qwen3MoeLogitsAreThoseOfThePublicImplementation) {
  ModelConfig config = TinyMoe();
  AsDecoder(config).vocab = 11;
  ExpectGolden(config, "qwen3_moe_logits.golden");
}

TEST(GoldenTest, Gpt3LogitsAreThoseOfThePublicImplementation) {
  ModelConfig config = TinyGpt3();
  AsDecoder(config).vocab = 11;
  ExpectGolden(config, "gpt3_logits.golden");
}

}  // namespace
}  // namespace trainyard::testing
