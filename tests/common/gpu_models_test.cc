// The peaks by a GPU's name: those that the numbers of other systems refer to, and none by halves.

#include "common/gpu_models.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(GpuModels, HavePeaksByDtype) {
  const GpuModel* h200 = FindGpuModel("NVIDIA H200");
  ASSERT_NE(h200, nullptr);
  EXPECT_EQ(h200->peak_flops().at("bf16"), 989e12);
  EXPECT_EQ(h200->peak_flops().at("fp8"), 1979e12);
  EXPECT_EQ(h200->peak_flops().at("f32"), 67e12);
  EXPECT_EQ(h200->peak_flops().count("f64"), 0u);  // No kernels, so no rate.
  EXPECT_EQ(h200->memory_bytes_per_second, 4.8e12);
  EXPECT_EQ(h200->memory_bytes, 141'000'000'000u);
}

// Bug it must catch: one H100 for another: the PCIe card has three quarters of the module's rate.
TEST(GpuModels, AreFoundByTheWholeNameAlone) {
  EXPECT_LT(FindGpuModel("NVIDIA H100 PCIe")->bf16_flops,
            FindGpuModel("NVIDIA H100 80GB HBM3")->bf16_flops);
  for (const char* unknown : {"", "NVIDIA H100", "NVIDIA H100 80GB HBM3e", "nvidia h200", "H200"}) {
    EXPECT_EQ(FindGpuModel(unknown), nullptr) << unknown;
  }
}

}  // namespace
}  // namespace trainyard
