// Proves what the declarations of the optimizers promise, and that a plan has the memory that they
// declare.

#include "models/program/optimizer/optimizer.h"

#include <algorithm>
#include <set>
#include <string>

#include "common/interval.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using ::testing::IsSubsetOf;

TEST(Optimizers, DeclareLegalDefaultsAndWhatEveryOptimizerHas) {
  std::set<std::string> names;
  for (const Optimizer* const optimizer : Optimizers()) {
    SCOPED_TRACE(optimizer->name);
    EXPECT_TRUE(names.insert(optimizer->name).second);
    EXPECT_EQ(FindOptimizer(optimizer->name), optimizer);
    std::set<std::string> options;
    for (const OptimizerOption& option : optimizer->options) {
      EXPECT_TRUE(options.insert(option.name).second) << option.name;
      const bool required = std::string(option.name) == "learning_rate";
      EXPECT_NE(IsWithin(option.wanted, option.standard), required) << option.name;
    }
    EXPECT_THAT((std::set<std::string>{"learning_rate", "weight_decay"}), IsSubsetOf(options));
    EXPECT_THAT(optimizer->states, IsSubsetOf(kStateBuffers));
  }
  EXPECT_EQ(FindOptimizer("adam"), nullptr);
}

TEST(OptimizerOptions, AreTheDefaultsUnlessTheyAreGiven) {
  EXPECT_STREQ(OptimizerOptions().optimizer().name, "adamw");
  OptimizerOptions options = {{"beta1", 0.5}};
  EXPECT_EQ(options["beta1"], 0.5);
  EXPECT_EQ(options["beta2"], 0.95);
  EXPECT_NE(options, OptimizerOptions());
  EXPECT_DEATH(options["momentum"], "adamw has no option momentum");
}

// The state of the optimizer in a plan, by buffer.
TEST(Optimizers, HaveMemoryForTheStateThatTheyDeclareAndForNoOther) {
  for (const Optimizer* const optimizer : Optimizers()) {
    const Program program = RecordTraining(
        *CreateModel(TinyLlama()), {.record = {.precision = Precision::BF16(), .sequence = 4},
                                    .optimizer = OptimizerOptions(*optimizer)});
    for (const FlatBuffer state : kStateBuffers) {
      const auto declared = std::count(optimizer->states.begin(), optimizer->states.end(), state);
      EXPECT_EQ(program.BytesOf(state), size_t(declared * 4 * program.shard_elements))
          << optimizer->name << ", buffer " << int(state);
    }
  }
}

}  // namespace
}  // namespace trainyard::testing
