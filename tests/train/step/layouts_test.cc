// Proves that every layout computes what one rank does: losses, every gradient, and the parameters
// after six clipped AdamW steps, in f64. The list of layouts is generated: all of up to two ranks,
// and some of up to eight; scripts/layouts.sh runs all of these. Bugs planted in a rank's program
// show that the comparison sees what it should.

#include "tests/train/step/layouts.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>

#include "common/check.h"
#include "models/arch/registry.h"
#include "models/program/op.h"
#include "models/program/ops/ops.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

constexpr double kLayoutTolerance = 1e-10;

// A gradient or weight that is missed is off by 1e-3 and more.
bool AmplifiesRounding(const LayoutCase& c) {
  return CaseOf(c.model.family()).amplifies_rounding_if_tied && AsDecoder(c.model).tied;
}

double ToleranceOf(const LayoutCase& c) { return AmplifiesRounding(c) ? 1e-6 : kLayoutTolerance; }

class Layouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(Layouts, StepsEqualThoseOfOneRankAndSendWhatTheFormulaSays) {
  const LayoutCase layout = HeldUp(GetParam());
  const double difference = LargestDifference(Train(layout), TrainOnOneRank(layout));
  EXPECT_LT(difference, ToleranceOf(GetParam()));
  RecordProperty("difference", absl::StrCat(difference));  // For scripts/families_table.py.
}

// A learning rate that is larger by 45 units in the last place changes the weights of one rank by
// up to 2.4e-7 in six steps, and those of the other families by at most 8e-12. So the order of sums
// in another layout may change them as much. Few batches do so: 4 of 132 here, always the same.
TEST(Conditioning, WhatHasAWiderToleranceAmplifiesRounding) {
  double largest = 0;
  for (const LayoutCase& c : AllLayouts("nemotron_h", 4)) {
    if (!AmplifiesRounding(c)) continue;
    LayoutCase other = HeldUp(c);
    other.masked = false;
    const TrainedSteps steps = TrainOnOneRank(other);
    other.learning_rate *= 1 + 1e-14;
    largest = std::max(largest, LargestDifference(TrainOnOneRank(other), steps));
    if (largest > 10 * kLayoutTolerance) return;
  }
  FAIL() << "1e-14 became " << largest;
}

// An op whose word on what it sends is not what it does.
class Misstated final : public Op {
 public:
  Misstated(std::shared_ptr<const Op> op, int64_t calls, int64_t bytes)
      : op_(std::move(op)), calls_(calls), bytes_(bytes) {}
  absl::string_view name() const override { return op_->name(); }
  AxisSet group() const override { return op_->group(); }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return op_->Bind(binder, instance);
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    auto communication = op_->CommunicationOf(program, instance);
    communication.back().calls += calls_;
    communication.back().bytes += bytes_;
    return communication;
  }

 private:
  std::shared_ptr<const Op> op_;
  int64_t calls_, bytes_;
};

bool CommunicatesInAStep(const Instance& instance) {
  return !instance.op->group().empty() && instance.list >= List::kForward &&
         instance.when != When::kValidation;
}

// One instance of each op that communicates, one op at a time: no other may make up for it. Returns
// the ops.
std::set<std::string> ExpectMisstatedOpsAreSeen(const LayoutCase& layout) {
  std::mutex mutex;
  std::set<std::string> ops;
  Train(layout, [&](Program& program) {
    const std::lock_guard lock(mutex);
    for (const Instance& instance : program.instances) {
      if (CommunicatesInAStep(instance)) ops.emplace(instance.op->name());
    }
  });
  for (const std::string& op : ops) {
    for (const auto& [calls, bytes] : {std::pair(1, 0), std::pair(0, 1)}) {
      const TrainedSteps steps = Train(layout, [&, calls = calls, bytes = bytes](Program& program) {
        const auto it = std::find_if(
            program.instances.begin(), program.instances.end(),
            [&](const Instance& i) { return CommunicatesInAStep(i) && i.op->name() == op; });
        if (it == program.instances.end()) return;  // Of another stage.
        it->op = std::make_shared<Misstated>(it->op, calls, bytes);
      });
      EXPECT_THAT(steps.uncounted, ::testing::Not(::testing::IsEmpty())) << op;
    }
  }
  return ops;
}

TEST(CommunicationFormula, AnyOpThatIsMisstatedIsSeen) {
  EXPECT_THAT(ExpectMisstatedOpsAreSeen(
                  MakeLayoutCase("gpt3", {.tensor = 2, .pipeline = 2, .context = 2}, 2)),
              ::testing::IsSupersetOf({"all_gather", "reduce_scatter", "reduce_gradients",
                                       "scatter_bucket", "gather_parameters", "reduce_scalars",
                                       "context_attention", "context_attention_backward",
                                       "gather_matmul", "gather_matmul_weight_gradient",
                                       "matmul_scatter", "linear_cross_entropy_backward"}));
  const LayoutCase experts = MakeLayoutCase("qwen3_moe", {.expert = 2, .zero = Zero::kFull}, 2);
  EXPECT_THAT(ExpectMisstatedOpsAreSeen(WithRouter(experts, std::size(kRouters) - 1)),
              ::testing::IsSupersetOf({"expert_mlp", "expert_mlp_backward", "gather_window"}));
}

class RecomputedLayoutsTest : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(RecomputedLayoutsTest, EqualToTheBitWithoutRecompute) {
  const LayoutCase layout = HeldUp(GetParam());
  LayoutCase kept = layout;
  kept.job.recompute = {};
  EXPECT_EQ(LargestDifference(Train(layout), Train(kept)), 0);
}

// What is sent to experts that are computed again: rows and weights, and no outputs back.
TEST(RecomputedExperts, SendWhatBackwardReadsAndNoMore) {
  LayoutCase layout = MakeLayoutCase("qwen3_moe", {.expert = 2}, 2);
  layout = WithRouter(layout, 4);  // In turn: the ranks have equally many rows for each other.
  ASSERT_STREQ(kRouters[layout.router], "turns");
  const TrainedSteps kept = Train(layout);
  const DecoderConfig& model = AsDecoder(layout.model);
  layout.job.recompute.blocks = model.layers;
  const TrainedSteps again = Train(layout);
  EXPECT_EQ(LargestDifference(again, kept), 0);
  const int64_t ranks = 2, steps = 2, micro_batches = 2;
  const int64_t slots = layout.job.batch.sequence * model.moe->top_k;
  const int64_t row = model.hidden * 8, weight = 8,
                other = ranks * steps * micro_batches * model.layers * slots / 2;
  EXPECT_EQ(kept.all_to_all_bytes, other * 2 * (2 * row + weight));
  EXPECT_EQ(again.all_to_all_bytes - kept.all_to_all_bytes, other * (row + weight));
}

// Bugs that must be seen: each damages the program of every rank of a layout that would show it.
struct PlantedBug {
  std::string name;
  LayoutCase layout;
  std::function<void(Program&)> edit;
  friend void PrintTo(const PlantedBug& bug, std::ostream* out) { *out << bug.name; }
};

void Remove(Program& program, const std::function<bool(const Instance&)>& bad) {
  CHECK(std::erase_if(program.instances, bad) > 0) << "nothing to damage";
}

bool Is(const Instance& instance, absl::string_view op, AxisSet group) {
  return instance.op->name() == op && instance.op->group() == group;
}

Instance& Find(Program& program, absl::string_view op) {
  const auto found =
      std::find_if(program.instances.begin(), program.instances.end(),
                   [&](const Instance& instance) { return instance.op->name() == op; });
  CHECK(found != program.instances.end()) << "no " << op << " to damage";
  return *found;
}

// Experts are divided over these two ranks, and everything else is not.
std::vector<PlantedBug> PlantedBugsOfExperts() {
  const LayoutCase experts = MakeLayoutCase("qwen3_moe", {.expert = 2, .zero = Zero::kNone}, 2);
  const auto balanced_alone = [experts](Program& program) {
    Program alone = RecordTraining(
        *CreateModel(experts.model),
        {.record = {.precision = Precision::F64(), .sequence = program.sequence, .mesh = {}}});
    Find(program, "load_balance").op = Find(alone, "load_balance").op;
  };
  return {
      {"gate_without_gradient", experts,
       [](Program& p) {
         Remove(p, [&](const Instance& i) {
           if (i.op->name() != "matmul_weight_gradient") return false;
           const std::string& name = p.storage(i.outputs[0]).parameters.front().name;
           return name.ends_with("mlp.gate.weight");
         });
       }},
      {"experts_summed_over_the_ranks_that_share_them_out", experts,
       [](Program& p) {
         for (const ParameterStorage& storage : p.storages) {
           if (!storage.parameters.front().stacked) continue;
           const auto optimizer =
               std::find_if(p.instances.begin(), p.instances.end(),
                            [](const Instance& i) { return i.list == List::kOptimizer; });
           const auto bucket = std::find_if(
               p.buckets.begin(), p.buckets.end(),
               [&](const Bucket& b) { return !b.flat.Intersect(storage.flat).empty(); });
           p.instances.insert(optimizer, ops::ReduceGradients(*bucket, storage.flat, Axis::kExpert,
                                                              ops::Reduction::kSum));
         }
       }},
      {"gradients_of_weights_not_sent_back", experts,
       [](Program& p) { Find(p, "router_backward").inputs[2] = Find(p, "router").outputs[1]; }},
      {"load_of_one_rank_balanced", experts, balanced_alone},
  };
}

std::vector<PlantedBug> PlantedBugs() {
  const LayoutCase tensor = MakeLayoutCase("llama", {.tensor = 2}, 1);
  const LayoutCase few_heads = MakeLayoutCase("llama", {.tensor = 4}, 1);
  const LayoutCase data = MakeLayoutCase("llama", {.zero = Zero::kNone}, 2);
  const LayoutCase sharded = MakeLayoutCase("llama", {}, 2);
  const LayoutCase context = MakeLayoutCase("llama", {.context = 2}, 1);
  const LayoutCase stages = MakeLayoutCase("gpt3", {.pipeline = 2}, 1);
  // The rotation table of the other context rank.
  const auto other_positions = [context](Program& program) {
    const Mesh other{.context = 2, .rank = 1 - program.mesh.rank};
    const Program there = RecordTraining(
        *CreateModel(context.model),
        {.record = {.precision = Precision::F64(), .sequence = program.sequence, .mesh = other}});
    const auto table = [](const Program& p) {
      return std::find_if(p.instances.begin(), p.instances.end(), [](const Instance& instance) {
        return instance.op->name() == "rope_table";
      });
    };
    program.instances[size_t(table(program) - program.instances.begin())].op = table(there)->op;
  };
  return {
      {"norm_gains_not_summed_over_tensor", tensor,
       [](Program& p) {
         Remove(p, [](const Instance& i) { return Is(i, "reduce_gradients", Axis::kTensor); });
       }},
      {"copies_of_key_value_heads_not_summed", few_heads,
       [](Program& p) {
         Remove(p, [](const Instance& i) { return Is(i, "reduce_gradients", Axis::kKvReplica); });
       }},
      {"bucket_not_summed_over_data", data,
       [](Program& p) {
         Remove(p, [](const Instance& i) { return Is(i, "reduce_bucket", Axis::kData); });
       }},
      {"updated_weights_not_gathered", sharded,
       [](Program& p) {
         Remove(p, [](const Instance& i) {
           return Is(i, "gather_parameters", Axis::kData) && i.list == List::kOptimizer;
         });
       }},
      {"shard_missing_in_the_norm", sharded,
       [](Program& p) {
         if (p.mesh.rank == 0) return;
         Remove(p, [](const Instance& i) { return i.op->name() == "sum_squares"; });
       }},
      {"tied_gradient_not_summed_across_stages", stages,
       [](Program& p) {
         Remove(p, [](const Instance& i) { return Is(i, "reduce_gradients", Axis::kEnds); });
       }},
      {"output_projection_split_along_the_other_dim", tensor,
       [](Program& p) {
         for (ParameterStorage& storage : p.storages) {
           ParameterSpec& spec = storage.parameters.front();
           if (spec.name.ends_with("o_proj.weight")) spec.shard = Shard::Rows(kTensorAxes);
         }
       }},
      {"positions_of_another_context_rank", context, other_positions},
  };
}

std::vector<PlantedBug> PlantedZeroFullBugs() {
  const LayoutCase full = MakeLayoutCase("llama", {.zero = Zero::kFull}, 2);
  return {
      {"blocks_stay_whole_after_the_update", full,
       [](Program& p) {
         Remove(p, [](const Instance& i) {
           return i.op->name() == "forget" && i.list == List::kOptimizer;
         });
       }},
      {"blocks_not_fetched_for_backward", full,
       [](Program& p) {
         Remove(p, [](const Instance& i) {
           return i.op->name() == "fetch" && i.list == List::kBackwardInput;
         });
       }},
      {"shard_without_the_first_micro_batch", full,
       [](Program& p) {
         for (Instance& i : p.instances) {
           if (i.op->name() == "add_to_shard") i.when = When::kLastMicroBatch;
         }
       }},
  };
}

// Of a family whose condition by sample all blocks read.
std::vector<PlantedBug> PlantedBugsOfConditions() {
  const LayoutCase tensor = MakeLayoutCase("dit", {.tensor = 2}, 1);
  const LayoutCase context = MakeLayoutCase("dit", {.context = 2}, 1);
  const LayoutCase stages = MakeLayoutCase("dit", {.pipeline = 2}, 1);
  const auto without_groups = [](Program& p) {
    Program alone =
        RecordTraining(*CreateModel(MakeLayoutCase("dit", {}, 1).model),
                       {.record = {.precision = Precision::F64(), .sequence = 2, .mesh = {}}});
    for (Instance& i : p.instances) {
      if (i.op->name() == "sum_samples") i.op = Find(alone, "sum_samples").op;
    }
  };
  return {
      {"condition_not_summed_over_tensor", tensor, without_groups},
      {"condition_not_summed_over_context", context, without_groups},
      {"condition_without_the_gradient_of_later_stages", stages,
       [](Program& p) {
         for (Chunk& chunk : p.chunks) {
           for (Crossing& sent : chunk.sent) {
             if (sent.name != "condition") continue;
             for (Instance& i : p.instances) {  // Added to what the own blocks find.
               if (i.op->name() == "add" && i.inputs[0] == sent.gradient) i.inputs[0] = i.inputs[1];
             }
           }
         }
       }},
      {"patches_of_the_first_tensor_rank", tensor,
       [](Program& p) {
         if (p.mesh.rank == 0) return;
         Program first = RecordTraining(*CreateModel(MakeLayoutCase("dit", {.tensor = 2}, 1).model),
                                        {.record = {.precision = Precision::F64(),
                                                    .micro_batch = p.micro_batch,
                                                    .sequence = p.sequence,
                                                    .mesh = {.tensor = 2}}});
         Find(p, "own_rows").op = Find(first, "own_rows").op;
       }},
  };
}

class PlantedBugTest : public ::testing::TestWithParam<PlantedBug> {};

TEST_P(PlantedBugTest, IsFarBeyondTheTolerance) {
  const PlantedBug& bug = GetParam();
  const TrainedSteps got = Train(bug.layout, bug.edit);
  EXPECT_GT(LargestDifference(got, TrainOnOneRank(bug.layout)), 1e5 * kLayoutTolerance);
}

std::string NameOfBug(const ::testing::TestParamInfo<PlantedBug>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, PlantedBugTest, ::testing::ValuesIn(PlantedBugs()), NameOfBug);
INSTANTIATE_TEST_SUITE_P(Experts, PlantedBugTest, ::testing::ValuesIn(PlantedBugsOfExperts()),
                         NameOfBug);
INSTANTIATE_TEST_SUITE_P(Conditions, PlantedBugTest, ::testing::ValuesIn(PlantedBugsOfConditions()),
                         NameOfBug);
INSTANTIATE_TEST_SUITE_P(ZeroFull, PlantedBugTest, ::testing::ValuesIn(PlantedZeroFullBugs()),
                         NameOfBug);

std::string NameOf(const ::testing::TestParamInfo<LayoutCase>& info) { return info.param.name(); }

// A family of the registry takes part without being named here.
INSTANTIATE_TEST_SUITE_P(Families, Layouts,
                         ::testing::ValuesIn(OfEveryFamily([](const std::string& family) {
                           return SomeLayouts(family);
                         })),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Families, RecomputedLayoutsTest,
                         ::testing::ValuesIn(OfEveryFamily([](const std::string& family) {
                           return RecomputedLayouts(family, 16);
                         })),
                         NameOf);

}  // namespace
}  // namespace trainyard::testing
