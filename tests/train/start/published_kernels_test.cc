// Proves without a GPU which kernels the published runs have on GPUs: attention never leaves the
// tensor cores, and norms read their rows once. cudnn_plans_test makes cuDNN's plans of attention.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/norms/norm_plans.h"
#include "kernels/device/dtype.h"
#include "tests/train/start/published_attention.h"

namespace trainyard::testing {
namespace {

TEST(PublishedKernels, AttentionNeverLeavesTheTensorCores) {
  int cudnn = 0, ours = 0;
  const int runs = ForEachPublishedAttention([&](const std::string& run, const auto& args) {
    EXPECT_TRUE(OnTensorCores(args))
        << run << ": " << args.q.rows << " rows of " << args.q.dtype << ", heads "
        << args.dims.heads << " and " << args.dims.kv_heads << " of " << args.dims.head_dim
        << ", values of " << args.dims.value_dim << ", rows of " << args.q.stride;
    ++(CudnnPlanOf(args) ? cudnn : ours);
  });
  EXPECT_EQ(runs, 91);
  EXPECT_GT(cudnn, 0);
  EXPECT_GT(ours, 0) << "packed documents";
}

// Bug it must catch: the rows of Nemotron-4 340B, which are read element by element, and again for
// the outputs.
TEST(PublishedKernels, NormsHoldTheirRowsInRegisters) {
  const auto is_norm = [](const Instance& instance) {
    return absl::StrContains(instance.op->name(), "_norm");
  };
  int64_t widest = 0;
  int calls = 0;
  ForEachPublishedRank(is_norm, [&](const std::string& run, const CallBook& book) {
    const auto held = [&](const auto& args) {
      ++calls;
      const int64_t columns = args.x.shape.back();
      widest = std::max(widest, columns);
      DispatchFloat(args.x.dtype, [&](auto scalar) {
        EXPECT_GT(cuda::PlanOf<decltype(scalar)>(args).held, 0) << run << ": rows of " << columns;
      });
    };
    book.ForEach<LayerNormForwardArgs>(held);
    book.ForEach<LayerNormBackwardArgs>(held);
    book.ForEach<RmsNormForwardArgs>(held);
    book.ForEach<RmsNormBackwardArgs>(held);
  });
  EXPECT_GT(calls, 0);
  EXPECT_EQ(widest, 18432);
}

}  // namespace
}  // namespace trainyard::testing
