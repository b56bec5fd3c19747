// Proves without a GPU which kernels the published runs have on GPUs: cuDNN or our kernels on the
// tensor cores compute attention, as each kind of call wants, and norms read their rows once.
// cudnn_plans_test makes cuDNN's plans of attention.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda/norms/norm_plans.h"
#include "kernels/device/dtype.h"
#include "tests/train/start/published_attention.h"

namespace trainyard::testing {
namespace {

// What kind of call of attention this is: whole or of a part, and what it has beside a causal mask.
template <typename Args>
std::string KindOf(const Args& args) {
  std::string kind = "whole";
  AttentionMask mask = args.dims.mask;
  if constexpr (requires { args.part; }) kind = "part", mask = args.part.mask;
  if (!IsPlain(args)) kind += ", documents";
  if (args.dims.head_dim != args.dims.value_dim) kind += ", latent";
  if (!mask.causal) kind += ", full";
  if (mask.window > 0) kind += ", window";
  if (args.sinks.data != nullptr) kind += ", sinks";
  return kind;
}

// Who computes each kind of call: cuDNN, or our kernels on the tensor cores. Bug it must catch: a
// kind that cuDNN no longer gets, which our kernels compute in more time.
TEST(PublishedKernels, AttentionIsComputedByCudnnExceptForDocuments) {
  constexpr bool kCudnn = true, kOurs = false;
  const std::map<std::string, bool> wanted = {
      {"whole", kCudnn},        {"whole, documents", kOurs},      {"whole, latent", kCudnn},
      {"whole, sinks", kCudnn}, {"whole, window, sinks", kCudnn}, {"part", kCudnn},
      {"part, full", kCudnn}};
  std::set<std::string> seen, wrong;
  const int runs = ForEachPublishedAttention([&](const std::string& run, const auto& args) {
    const std::string kind = KindOf(args);
    seen.insert(kind);
    const auto found = wanted.find(kind);
    const bool cudnn = CudnnPlanOf(args).has_value();
    const bool right = found != wanted.end() && cudnn == found->second;
    if (right && (cudnn || OnOurTensorCores(args))) return;
    wrong.insert(absl::StrCat(run, ": ", kind, ", by ", cudnn ? "cuDNN" : "our kernels", ": heads ",
                              args.dims.heads, " and ", args.dims.kv_heads, " of ",
                              args.dims.head_dim, ", values of ", args.dims.value_dim, ", rows of ",
                              args.q.stride));
  });
  EXPECT_EQ(runs, 91);
  EXPECT_THAT(wrong, ::testing::IsEmpty());
  EXPECT_EQ(seen.size(), wanted.size()) << absl::StrJoin(seen, "; ");
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
