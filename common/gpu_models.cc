#include "common/gpu_models.h"

#include <algorithm>

namespace trainyard {
namespace {

constexpr double kTera = 1e12;
constexpr uint64_t kGB = 1'000'000'000;

// From NVIDIA's data sheets of the H100 and the H200 Tensor Core GPU. The data sheets give the
// tensor cores' rates with sparsity, which are twice these.
constexpr GpuModel kModels[] = {
    // The columns: name, bf16, fp8, f32, memory per second, memory.
    {"NVIDIA H100 80GB HBM3", 989 * kTera, 1979 * kTera, 67 * kTera, 3.35 * kTera, 80 * kGB},
    {"NVIDIA H100 PCIe", 756 * kTera, 1513 * kTera, 51 * kTera, 2.0 * kTera, 80 * kGB},
    {"NVIDIA H100 NVL", 835.5 * kTera, 1671 * kTera, 60 * kTera, 3.9 * kTera, 94 * kGB},
    {"NVIDIA H200", 989 * kTera, 1979 * kTera, 67 * kTera, 4.8 * kTera, 141 * kGB},
    {"NVIDIA H200 NVL", 835.5 * kTera, 1671 * kTera, 60 * kTera, 4.8 * kTera, 141 * kGB},
};

}  // namespace

std::map<std::string, double> GpuModel::peak_flops() const {
  return {{"bf16", bf16_flops}, {"f32", f32_flops}, {"fp8", fp8_flops}};
}

const GpuModel* FindGpuModel(absl::string_view name) {
  const auto found = std::find_if(std::begin(kModels), std::end(kModels),
                                  [&](const GpuModel& model) { return model.name == name; });
  return found == std::end(kModels) ? nullptr : found;
}

}  // namespace trainyard
