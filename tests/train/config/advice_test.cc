// Proves that the nearest legal values lead to a legal job: whatever layout is asked for, taking
// the advice of the first violation, and again, ends in a job that passes, and does so at once
// where one change is enough. Catches advice that is itself refused, and two violations that send
// the user round in circles.

#include "train/config/advice.h"

#include <gmock/gmock.h>

#include <limits>
#include <map>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/train/config/check.h"
#include "train/config/validate.h"
#include "train/data/synthetic.h"

namespace trainyard {
namespace {

constexpr int kMostAdvice = 20;

std::map<std::string, int64_t*> FieldsOf(JobConfig& job) {
  ParallelismConfig& p = job.parallelism;
  return {{"devices", &job.devices},
          {"batch.global", &job.batch.global},
          {"batch.micro", &job.batch.micro},
          {"batch.sequence", &job.batch.sequence},
          {"parallelism.tensor", &p.tensor},
          {"parallelism.pipeline", &p.pipeline},
          {"parallelism.virtual_pipeline", &p.virtual_pipeline},
          {"parallelism.context", &p.context},
          {"parallelism.expert", &p.expert}};
}

class Advice : public ::testing::Test {
 protected:
  explicit Advice(uint64_t seed = 1) : random_(seed) {}

  int64_t Any(std::initializer_list<int64_t> values) {
    return values.begin()[random_() % values.size()];
  }

  JobConfig RandomJob() {
    JobConfig job;
    job.name = "any";
    const std::string family = random_() % 2 == 0 ? "llama" : "gpt3";
    const int64_t layers = Any({1, 2, 5, 16}), heads = Any({1, 4, 6, 32});
    const int64_t kv_heads = family == "gpt3" ? heads : Any({1, heads});
    const int64_t ffn = Any({12, 96, 128}), vocab = Any({30, 96, 256});
    job.model.architecture = {family,
                              {{"layers", layers},
                               {"heads", heads},
                               {"kv_heads", kv_heads},
                               {"head_dim", 4},
                               {"hidden", 4 * heads},
                               {"ffn", ffn},
                               {"vocab", vocab},
                               {"max_seq", Any({7, 16, 96, 4096})}}};
    job.batch = {.global = Any({1, 7, 12, 96, 999'999}),
                 .micro = Any({1, 2, 5}),
                 .sequence = Any({1, 7, 12, 96, 5000})};
    job.parallelism = {.tensor = Any({1, 1, 2, 3, 4, 300}),
                       .pipeline = Any({1, 1, 2, 3, 8, 40, 300}),
                       .virtual_pipeline = Any({1, 1, 2, 3, 9}),
                       .context = Any({1, 1, 2, 5, 65'536})};
    const std::span<const ScheduleKind> kinds = AllSchedules();
    const size_t kind = random_() % (kinds.size() + 1);
    job.parallelism.schedule = kind == 0 ? nullptr : &kinds[kind - 1];
    job.devices = Any({1, 2, 6, 8, 24, 65'536});
    job.data = SyntheticData{};
    job.optimizer.options["learning_rate"] = 1e-3;
    job.steps = 1;
    return job;
  }

  std::mt19937_64 random_;
};

// False where it has none to give.
bool Take(const FieldViolation& violation, JobConfig& job) {
  const std::string& nearest = violation.nearest;
  if (nearest.empty()) return false;
  if (violation.field == "parallelism.schedule") {
    for (const ScheduleKind& kind : AllSchedules()) {
      if (nearest == kind.name) job.parallelism.schedule = &kind;
    }
    return true;
  }
  const auto fields = FieldsOf(job);
  const auto field = fields.find(violation.field);
  return field != fields.end() && absl::SimpleAtoi(nearest, field->second);
}

TEST_F(Advice, TakenAgainAndAgainEndsInALegalJob) {
  int refused = 0;
  std::map<std::string, int> fields;
  for (int round = 0; round < 5000; ++round) {
    JobConfig job = RandomJob();
    std::vector<std::string> said;
    for (;;) {
      Violations violations;
      Validate(job, violations);
      if (violations.empty()) break;
      const FieldViolation violation = violations.list().front();
      ++fields[violation.field];
      said.push_back(absl::StrCat(violation.field, ": ", violation.Description()));
      ASSERT_TRUE(Take(violation, job)) << said.back();
      ASSERT_LE(said.size(), kMostAdvice) << absl::StrJoin(said, "\n");
    }
    refused += !said.empty();
  }
  EXPECT_GT(refused, 3000);
  JobConfig any;
  for (const auto& [name, field] : FieldsOf(any)) {
    if (name == "parallelism.expert") continue;                       // 1 in all of them.
    EXPECT_GT(fields[name], name == "batch.micro" ? 0 : 20) << name;  // Seldom of the first rule.
  }
  EXPECT_GT(fields["parallelism.schedule"], 20);
}

// Bugs it must catch: a search that leaves legal values out; a rule's nearest value, said first,
// that breaks another rule.
TEST_F(Advice, ASizeThatMadeALegalJobIllegalHasANearestLegalValue) {
  std::map<std::string, int> fields;
  int others = 0;  // That were named first in place of the size that was changed.
  for (int round = 0; round < 2000; ++round) {
    JobConfig job = RandomJob(), other = RandomJob();
    for (auto list = Check(job); !list.empty(); list = Check(job)) ASSERT_TRUE(Take(list[0], job));
    other.parallelism.expert = 2;
    for (const auto& [name, value] : FieldsOf(other)) {
      JobConfig changed = job;
      int64_t& size = *FieldsOf(changed).at(name);
      const int64_t legal = std::exchange(size, *value), found = size;
      const std::optional<FieldViolation> advice = OneChange(changed, name);
      const auto list = Check(changed);
      ASSERT_EQ(advice.has_value(), !list.empty()) << name << " " << legal << " " << found;
      if (!advice) continue;
      ++fields[name];
      if (JobConfig obedient = changed; FieldsOf(obedient).contains(list[0].field)) {
        ASSERT_TRUE(Take(list[0], obedient)) << list[0].Description();
        EXPECT_THAT(Check(obedient), ::testing::IsEmpty())
            << list[0].field << list[0].Description();
        others += list[0].field != name;
      }
      EXPECT_EQ(advice->field, name);
      ASSERT_TRUE(Take(*advice, changed));
      EXPECT_THAT(Check(changed), ::testing::IsEmpty()) << name << ": " << advice->Description();
      EXPECT_LE(std::abs(size - found), std::abs(legal - found)) << name << " " << found;
    }
  }
  JobConfig any;
  for (const auto& [name, value] : FieldsOf(any)) EXPECT_GT(fields[name], 50) << name;
  EXPECT_GT(others, 50);
}

// Bugs it must catch: a product of sizes that overflows, to zero among others, and a search that
// takes as long as the number is large.
TEST_F(Advice, SizesBeyondAllLimitsAreRefusedAtOnce) {
  JobConfig legal = RandomJob();
  for (auto list = Check(legal); !list.empty(); list = Check(legal)) {
    ASSERT_TRUE(Take(list[0], legal));
  }
  constexpr int64_t kLimits = std::numeric_limits<int64_t>::max();
  for (const int64_t size :
       {int64_t{1} << 31, int64_t{9'000'000'000'000'000'000}, kLimits, -kLimits - 1}) {
    JobConfig all = legal;
    for (const auto& [name, value] : FieldsOf(legal)) {
      JobConfig one = legal;
      *FieldsOf(one).at(name) = *FieldsOf(all).at(name) = size;
      EXPECT_THAT(Check(one), ::testing::Not(::testing::IsEmpty())) << name << " " << size;
      EXPECT_THAT(Check(all), ::testing::Not(::testing::IsEmpty())) << name << " " << size;
      for (const auto& [asked, unused] : FieldsOf(legal)) {
        OneChange(one, asked);
        OneChange(all, asked);
      }
    }
  }
  legal.parallelism.tensor = legal.parallelism.pipeline = int64_t{1} << 31;
  legal.parallelism.context = 4;
  EXPECT_EQ(OneChange(legal, "batch.global"), std::nullopt);
}

}  // namespace
}  // namespace trainyard
