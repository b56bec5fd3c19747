// Proves without a GPU which kernels the published runs have on GPUs: attention never leaves the
// tensor cores. cudnn_plans_test makes cuDNN's plans for these calls.

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace trainyard::testing
