// Proves which parameters patterns name, what is refused of them and with which words, and what a
// step computes where some are frozen.

#include "train/config/frozen.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rng.h"
#include "models/arch/flops.h"
#include "train/config/name_pattern.h"
#include "train/config/parse.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Match = NamePattern::Match;

TEST(NamePattern, StarsStandForAnyText) {
  EXPECT_TRUE(NamePattern("a.b").Matches("a.b"));
  EXPECT_FALSE(NamePattern("a.b").Matches("a.bc"));
  EXPECT_FALSE(NamePattern("a.b").Matches("xa.b"));
  EXPECT_FALSE(NamePattern("a.b").Matches("aXb"));
  for (const char* all : {"*", "**", "***"}) {
    EXPECT_TRUE(NamePattern(all).Matches(""));
    EXPECT_TRUE(NamePattern(all).Matches("model.norm.weight"));
  }
  EXPECT_TRUE(NamePattern("model.layers.*.mlp.*").Matches("model.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(NamePattern("a*").Matches("a"));
  EXPECT_TRUE(NamePattern("*ab*ab").Matches("abab"));
  EXPECT_FALSE(NamePattern("*ab*ab").Matches("ab"));
  EXPECT_TRUE(NamePattern("*aab").Matches("aaaab"));
  EXPECT_FALSE(NamePattern("").Matches("a"));
  EXPECT_TRUE(NamePattern(std::string(256, '*')).Matches("a"));
  EXPECT_TRUE(NamePattern(std::string(256, 'a')).Matches(std::string(256, 'a')));
}

// By trying every place that a star could end at.
bool Slowly(absl::string_view pattern, absl::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return Slowly(pattern.substr(1), name) || (!name.empty() && Slowly(pattern, name.substr(1)));
  }
  return !name.empty() && pattern[0] == name[0] && Slowly(pattern.substr(1), name.substr(1));
}

TEST(NamePattern, AgreesWithTheDefinition) {
  int matches = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const auto text = [&](uint64_t stream, uint64_t most, absl::string_view letters) {
      std::string result;
      const uint64_t length = RandomBits(i, stream, 0) % most;
      for (uint64_t j = 1; j <= length; ++j) {
        result += letters[RandomBits(i, stream, j) % letters.size()];
      }
      return result;
    };
    const std::string pattern = text(1, 6, "ab*"), name = text(2, 8, "ab");
    EXPECT_EQ(NamePattern(pattern).Matches(name), Slowly(pattern, name)) << pattern << ' ' << name;
    matches += Slowly(pattern, name);
  }
  EXPECT_GT(matches, 1000);
}

TEST(NamePattern, KnowsNumberedTensorsApart) {
  const auto match = [](const char* pattern) {
    return NamePattern(pattern).OfNumbered("mlp.experts.*.up.weight");
  };
  for (const char* all : {"*", "mlp.experts.*", "*.up.weight", "mlp.experts.*.up.weight", "mlp*"}) {
    EXPECT_EQ(match(all), Match::kAll) << all;
  }
  for (const char* some : {"mlp.experts.3.up.weight", "*experts.1*", "*2.up*", "*.12.*"}) {
    EXPECT_EQ(match(some), Match::kSome) << some;
  }
  for (const char* none : {"mlp.experts.x.up.weight", "mlp.experts..up.weight", "*.down.weight",
                           "mlp.experts.12345.up.weight"}) {
    EXPECT_EQ(match(none), Match::kNone) << none;
  }
}

constexpr char kLlama[] =
    "name: a\nmodel: {architecture: {family: llama, layers: 2, hidden: 16, ffn: 24, heads: 4, "
    "vocab: 256, max_seq: 16}}\n";
constexpr char kMoe[] =
    "name: a\nmodel: {architecture: {family: qwen3_moe, layers: 2, hidden: 16, heads: 4, vocab: "
    "256, max_seq: 16, moe: {experts: 12, top_k: 2, expert_ffn: 8, expert_bias: true}}}\n";
constexpr char kRestOfAJob[] =
    "data: {synthetic: {}}\nsteps: 3\nbatch: {global: 4, micro: 2, sequence: 8}\noptimizer: "
    "{adamw: {learning_rate: 1e-3}}\n";

absl::StatusOr<JobConfig> Job(const char* model, absl::string_view more) {
  return ParseAndValidateJob(absl::StrCat(model, kRestOfAJob, more));
}

// One violation, as "field: description".
std::string Refusal(const char* model, absl::string_view more) {
  const auto job = Job(model, more);
  const auto list = Violations::FromStatus(job.status());
  EXPECT_EQ(list.size(), job.ok() ? 0u : 1u) << job.status();
  return list.empty() ? "" : absl::StrCat(list[0].field, ": ", list[0].Description());
}

TEST(Frozen, NamesParametersAsCheckpointsDo) {
  const auto frozen = [](const JobConfig& job, const char* name) {
    return FrozenBy(job)({.name = name, .shape = {1}});
  };
  const JobConfig job =
      Job(kLlama, "frozen: ['model.layers.0.*', model.embed_tokens.weight]").value();
  EXPECT_TRUE(frozen(job, "model.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(frozen(job, "model.embed_tokens.weight"));
  EXPECT_FALSE(frozen(job, "model.layers.1.mlp.up_proj.weight"));
  const JobConfig opposite = Job(kLlama, "trainable: ['*norm*']").value();
  EXPECT_FALSE(frozen(opposite, "model.norm.weight"));
  EXPECT_TRUE(frozen(opposite, "lm_head.weight"));
  // An empty list is none.
  EXPECT_EQ(FrozenBy(Job(kLlama, "frozen: []\ntrainable: []").value()), nullptr);
  EXPECT_EQ(FrozenBy(Job(kLlama, "").value()), nullptr);
}

TEST(Frozen, IsRefusedByFieldWithTheNearestName) {
  EXPECT_THAT(Refusal(kLlama, "frozen: ['*', model.embed_token.weight]"),
              AllOf(HasSubstr("frozen[1]: wanted a pattern that matches a parameter, found"),
                    HasSubstr("nearest \"model.embed_tokens.weight\"")));
  EXPECT_THAT(Refusal(kLlama, "trainable: ['model.layers.7.*']"),
              AllOf(HasSubstr("trainable[0]: "), HasSubstr("nearest \"model.layers.")));
  EXPECT_THAT(Refusal(kLlama, "frozen: [a]\ntrainable: [b]"),
              HasSubstr("trainable: wanted one of frozen and trainable, found both"));
  EXPECT_THAT(Refusal(kLlama, "frozen: ['*']"),
              HasSubstr("frozen: wanted parameters that are left to train, found all of them"));
  EXPECT_THAT(Refusal(kLlama, "frozen: ['']"),
              HasSubstr("frozen[0]: wanted a pattern of 1 to 256"));
  EXPECT_THAT(Refusal(kLlama, absl::StrCat("frozen: ['", std::string(257, '*'), "']")),
              HasSubstr("frozen[0]: wanted a pattern of 1 to 256 bytes, found 257"));
  std::string many = "frozen: [";
  for (int i = 0; i < 65; ++i) absl::StrAppend(&many, "'*norm*', ");
  EXPECT_THAT(Refusal(kLlama, many + "]"),
              HasSubstr("frozen: wanted at most 64 patterns, found 65; nearest 64"));
  EXPECT_THAT(Refusal(kLlama, "init_from_subset: true"),
              HasSubstr("init_from_subset: wanted false without init_from"));
}

TEST(Frozen, TakesAllExpertsOfALayerOrNone) {
  EXPECT_EQ(Refusal(kMoe, "frozen: ['*.experts.*']"), "");
  EXPECT_EQ(Refusal(kMoe, "frozen: ['model.layers.1.mlp.experts.*.down_proj.weight']"), "");
  EXPECT_THAT(Refusal(kMoe, "frozen: ['model.layers.1.mlp.experts.3.*']"),
              AllOf(HasSubstr("frozen[0]: wanted all experts of a layer or none"),
                    HasSubstr("nearest \"model.layers.1.mlp.experts.*.")));
  // Also where another pattern has all of them.
  EXPECT_THAT(Refusal(kMoe, "frozen: ['*.experts.*', '*.0.*']"),
              HasSubstr("frozen[1]: wanted all experts of a layer or none"));
  EXPECT_THAT(Refusal(kMoe, "frozen: ['*.experts.*.gate_proj.weight']"),
              AllOf(HasSubstr("frozen: wanted both "), HasSubstr("or neither")));
  EXPECT_THAT(Refusal(kMoe, "trainable: ['*e_score_correction_bias']"), HasSubstr("left to train"));
}

// The patterns that take longest, on a model of many layers.
TEST(Frozen, TakesLittleTimeHoweverItIsWritten) {
  std::string many = "frozen: [";
  for (int i = 0; i < 64; ++i) {
    std::string pattern;
    while (pattern.size() < 250) pattern += "*e*l";
    absl::StrAppend(&many, "'", pattern, i, "', ");
  }
  std::string large = kLlama;
  large.replace(large.find("layers: 2"), 9, "layers: 900");
  const absl::Time begin = absl::Now();
  EXPECT_FALSE(Job(large.c_str(), many + "]").ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

// As many layers and experts as a spec may have. Before, such a spec took 16 GB of the controller.
TEST(Frozen, TakesLittleMemoryHoweverLargeTheModelIs) {
  const auto peak = [] {
    rusage used{};
    CHECK(getrusage(RUSAGE_SELF, &used) == 0);
    return used.ru_maxrss;  // KiB.
  };
  std::string large = kMoe;
  large.replace(large.find("layers: 2"), 9, absl::StrCat("layers: ", kMaxLayers));
  large.replace(large.find("experts: 12"), 11, absl::StrCat("experts: ", kMaxExperts));
  const int64_t before = peak();
  EXPECT_EQ(Refusal(large.c_str(), "frozen: ['model.layers.1.*']"), "");
  EXPECT_LT(peak() - before, 100 << 10);
}

TEST(FrozenFlops, AreWhatAStepComputes) {
  const auto flops = [](const char* more) {
    const JobConfig job = Job(kLlama, more).value();
    return TrainedFlopsPerToken(job, ResolveModel(job.model).value());
  };
  const JobConfig job = Job(kLlama, "").value();
  const double all = flops("");
  EXPECT_EQ(all, FlopsPerToken(ResolveModel(job.model).value(), job.batch.sequence).total());
  // Forward, and of the head its weight's gradient.
  const double head = 2.0 * 16 * 256;
  EXPECT_NEAR(flops("trainable: [lm_head.weight]"), all / 3 + head, 1e-6 * all);
  EXPECT_NEAR(flops("frozen: [lm_head.weight]"), all - head, 1e-6 * all);
  // A matrix's weight gradient is a third of what it costs.
  EXPECT_NEAR(flops("frozen: ['*down_proj*']"), all - 2 * 2.0 * 16 * 24, 1e-6 * all);
}

}  // namespace
}  // namespace trainyard
