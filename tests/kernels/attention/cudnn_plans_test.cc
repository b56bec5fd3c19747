// Proves that cuDNN has a plan for attention of every preset's heads and of every published run,
// forward and backward, summed in one order or in any, and that each works in the bytes that
// kernels/attention/cudnn_attention_plan.h says, from which memory is planned. No GPU: cuDNN plans
// for one that is described to it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/attention/cudnn_attention_graph.h"
#include "models/arch/registry.h"
#include "tests/testing/printed_seed.h"
#include "tests/train/start/published_attention.h"

namespace trainyard::testing {
namespace {

// As cuDNN writes it of an H200 (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
constexpr std::string_view kH200 =
    R"({"deviceVer":900,"driverVer":13000,"cudaDeviceId":0,"totalGlobalMem":150754820096,)"
    R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
    R"("regsPerBlock":65536,"multiProcessorCount":132,"smClockRateKHz":1980000,)"
    R"("memClockRateKHz":3201000,"l2CacheSize":62914560,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"pciDeviceId":0,)"
    R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"deviceName":"NVIDIA H200"})";

class CudnnPlans : public ::testing::Test {
 protected:
  CudnnPlans() {
    auto error = device_->deserialize({kH200.begin(), kH200.end()});
    EXPECT_TRUE(error.is_good()) << error.get_message();
  }

  // What cuDNN's plan works in; -1, and a failure, where there is none.
  int64_t Planned(const CudnnAttentionPlan& plan) {
    cudnn_frontend::graph::Graph graph;
    graph.set_device_properties(device_);
    graph.set_sm_version(90);
    cuda::DescribeAttention(plan, graph);
    int64_t bytes = -1;
    auto error = graph.validate();
    if (error.is_good()) error = graph.build_operation_graph();
    if (error.is_good()) error = graph.create_execution_plans({cuda::kPlanChoice});
    if (error.is_good()) error = graph.check_support();
    if (error.is_good()) error = graph.build_plans();
    if (error.is_good()) error = graph.get_workspace_size(bytes);
    EXPECT_TRUE(error.is_good()) << error.get_message();
    return bytes;
  }

  void ExpectPlanned(int64_t sequences, const AttentionDims& dims,
                     const std::optional<PartRows>& part) {
    ASSERT_TRUE(CudnnTakes(DType::kBF16, dims));
    for (const auto& [pass, deterministic] :
         {std::pair(AttentionPass::kForward, true), std::pair(AttentionPass::kBackward, true),
          std::pair(AttentionPass::kBackward, false)}) {
      const CudnnAttentionPlan plan{pass, sequences, dims, deterministic, part};
      EXPECT_EQ(Planned(plan), plan.WorkspaceBytes())
          << (pass == AttentionPass::kForward ? "forward" : "backward")
          << (deterministic ? "" : ", in any order") << ": " << sequences << " x " << plan.queries()
          << " over " << plan.keys() << ", heads " << dims.heads << " and " << dims.kv_heads
          << " of " << dims.head_dim << ", values of " << dims.value_dim;
    }
  }

 private:
  std::shared_ptr<cudnn_frontend::DeviceProperties> device_ =
      std::make_shared<cudnn_frontend::DeviceProperties>();
};

// `value_dim` 0: head_dim.
AttentionDims Dims(int64_t sequence, int64_t heads, int64_t kv_heads, int64_t head_dim,
                   int64_t value_dim = 0) {
  return {.sequence = sequence,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .value_dim = value_dim == 0 ? head_dim : value_dim,
          .scale = 1 / std::sqrt(double(head_dim))};
}

// What a plan is made for.
struct Case {
  std::string name;
  int64_t sequences = 2;
  AttentionDims dims;
  std::optional<PartRows> part = {};
};

// One in four: cuDNN compiles kernels for each plan, which takes seconds. All of them where
// $TRAINYARD_PLANS is "all".
std::vector<Case> Drawn(const std::vector<Case>& cases) {
  if (absl::NullSafeStringView(std::getenv("TRAINYARD_PLANS")) == "all") return cases;
  std::vector<Case> drawn;
  std::sample(cases.begin(), cases.end(), std::back_inserter(drawn), (cases.size() + 3) / 4,
              std::mt19937_64(PrintedSeed()));
  return drawn;
}

// One preset for each choice of heads.
std::vector<Case> Presets() {
  std::vector<Case> cases;
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t>> seen;
  for (const std::string& name : PresetNames()) {
    const ModelFacts facts = FactsOf(FindPreset(name)->config);
    const int64_t heads = facts.sizes.heads, head_dim = facts.sizes.head_dim;
    const int64_t value_dim = facts.sizes.value_head_dim;
    if (!seen.emplace(heads, facts.kv_heads, head_dim, value_dim).second) continue;
    const int64_t sequence = std::min<int64_t>(facts.max_sequence, 4096);
    cases.push_back({name, 2, Dims(sequence, heads, facts.kv_heads, head_dim, value_dim)});
  }
  return cases;
}

std::vector<Case> MasksThatAreTaken() {
  std::vector<Case> cases;
  for (const AttentionMask& mask :
       {AttentionMask{.window = 1}, AttentionMask{.window = 128}, AttentionMask{.window = 4096},
        AttentionMask{.causal = false}}) {
    for (const int64_t sequence : {256, 4096}) {
      AttentionDims dims = Dims(sequence, 16, 8, 72);
      dims.mask = mask;
      cases.push_back(
          {absl::StrCat(mask.causal ? "causal_" : "full_", mask.window, "_", sequence), 2, dims});
    }
  }
  return cases;
}

std::vector<Case> HeadDimsThatAreTaken() {
  std::vector<Case> cases;
  for (const int64_t d : {64, 72, 96, 128, 136, 192, 256}) {
    cases.push_back({absl::StrCat(d), 1, Dims(256, 4, 1, d)});
  }
  // Of latent attention, and of groups with wider keys than values.
  cases.push_back({"192_values_of_128", 1, Dims(384, 4, 4, 192, 128)});
  cases.push_back({"96_values_of_64", 2, Dims(256, 4, 2, 96, 64)});
  return cases;
}

// Of sequences that context ranks divide: own keys, half of the keys, half of the queries.
std::vector<Case> PartsThatAreTaken() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, int64_t queries, int64_t keys, const AttentionMask& mask,
                       AttentionDims dims) {
    dims.mask = mask;
    cases.push_back({name, 2, dims,
                     PartRows{.queries = queries,
                              .keys = keys,
                              .query_stride = PackedWidth(dims),
                              .key_stride = dims.key_columns() + dims.value_columns()}});
  };
  const AttentionDims heads = Dims(1024, 16, 16, 128), shared = Dims(1024, 8, 2, 64);
  constexpr AttentionMask kFull = {.causal = false};
  add("own", 1024, 1024, {}, heads);
  add("half_of_keys", 1024, 512, kFull, heads);
  add("half_of_queries", 512, 1024, kFull, heads);
  add("shared_half_of_keys", 1024, 512, kFull, shared);
  add("shared_half_of_queries", 512, 1024, kFull, shared);
  add("window", 512, 512, {.window = 128}, shared);
  add("latent", 512, 1024, kFull, Dims(1024, 4, 4, 192, 128));
  return cases;
}

class CudnnPlansOf : public CudnnPlans, public ::testing::WithParamInterface<Case> {};

TEST_P(CudnnPlansOf, AreThere) {
  ExpectPlanned(GetParam().sequences, GetParam().dims, GetParam().part);
}

std::string Name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !absl::ascii_isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(EveryPreset, CudnnPlansOf, ::testing::ValuesIn(Drawn(Presets())), Name);
INSTANTIATE_TEST_SUITE_P(EveryMask, CudnnPlansOf, ::testing::ValuesIn(Drawn(MasksThatAreTaken())),
                         Name);
INSTANTIATE_TEST_SUITE_P(EveryHeadDim, CudnnPlansOf,
                         ::testing::ValuesIn(Drawn(HeadDimsThatAreTaken())), Name);

INSTANTIATE_TEST_SUITE_P(EveryPart, CudnnPlansOf, ::testing::ValuesIn(Drawn(PartsThatAreTaken())),
                         Name);

// Each plan of the published runs once, whatever the number of sequences.
std::vector<Case> Published() {
  std::vector<Case> cases;
  std::set<decltype(CudnnAttentionPlan().Key())> seen;
  ForEachPublishedAttention([&](const std::string& run, const auto& args) {
    std::optional<CudnnAttentionPlan> plan = CudnnPlanOf(args);
    if (!plan) return;
    const int64_t sequences = plan->sequences;
    *plan = {.sequences = 0, .dims = plan->dims, .part = plan->part};
    if (seen.insert(plan->Key()).second) cases.push_back({run, sequences, plan->dims, plan->part});
  });
  return cases;
}

TEST_F(CudnnPlans, OfPublishedRunsAreThere) {
  const std::vector<Case> cases = Published();
  EXPECT_GE(cases.size(), 20u);
  for (const Case& of : Drawn(cases)) {
    SCOPED_TRACE(of.name);
    ExpectPlanned(of.sequences, of.dims, of.part);
  }
}

TEST(CudnnPresets, DifferInTheirHeads) { EXPECT_GE(Presets().size(), 8u); }

// Bug it must catch: `deterministic`, the default, keeps 32 GiB for 64 heads and 16,384 tokens.
TEST(CudnnKeptBytes, NoSquareOfALongSequence) {
  const auto kept = [](int64_t sequence, bool deterministic) {
    return CudnnKeptBytes(DType::kBF16,
                          {AttentionPass::kBackward, 1, Dims(sequence, 64, 8, 64), deterministic});
  };
  EXPECT_GT(kept(8192, true), kMostOrderedBytes);
  EXPECT_EQ(kept(8192 + 128, true), 0);
  EXPECT_EQ(kept(8192 + 1, true), 0) << "with its padding";
  EXPECT_EQ(kept(16384, true), 0);
  EXPECT_GT(kept(16384, false), 0);
}

// Queries of a full mask would see the zeroes after a sequence.
TEST(CudnnTakes, NoFullMaskOverPaddedSequences) {
  AttentionDims dims = Dims(200, 4, 4, 64);
  EXPECT_TRUE(CudnnTakes(DType::kBF16, dims));
  dims.mask.causal = false;
  EXPECT_FALSE(CudnnTakes(DType::kBF16, dims));
  dims.sequence = 256;
  EXPECT_TRUE(CudnnTakes(DType::kBF16, dims));
}

}  // namespace
}  // namespace trainyard::testing
