// Adapter of a throwing library: `try` is allowed here.
//
// Builds a graph for each shape through NVIDIA's header-only frontend, and keeps it.

#include <cuda_runtime_api.h>

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/attention/cudnn_attention_call.h"
#include "kernels/cuda/attention/cudnn_attention_graph.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/failure_text.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  throw DeviceError(DeviceError::Kind::kDevice, WithFailure("cuDNN: attention: " + what));
}
void ThrowIfError(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) Fail(cudnnGetErrorString(status));
}
void ThrowIfError(cudaError_t error) {
  if (error != cudaSuccess) Fail(cudaGetErrorString(error));
}

// Device memory that begins with zeroes: versions of cuDNN before 9.18 rely on this.
struct Workspace {
  explicit Workspace(size_t size) : bytes(size) {
    ThrowIfError(cudaMalloc(&data, bytes));
    ThrowIfError(cudaMemset(data, 0, bytes));
    ThrowIfError(cudaStreamSynchronize(nullptr));  // Our streams do not wait for the null stream.
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { cudaFree(data); }

  void* data = nullptr;
  const size_t bytes;
};

struct Plan {
  cudnn_frontend::graph::Graph graph;
  void* workspace = nullptr;  // Null: the plan needs none.
};

class Plans {
 public:
  Plans() { ThrowIfError(cudnnCreate(&handle_)); }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
  ~Plans() {
    plans_.clear();
    cudnnDestroy(handle_);
  }

  // Returns false if cuDNN has no plan for the shape.
  bool Execute(Exec& exec, const CudnnAttentionPlan& wanted, AttentionPointers pointers) {
    ThrowIfError(cudnnSetStream(handle_, static_cast<cudaStream_t>(exec.stream)));
    auto found = plans_.find(wanted);
    if (found == plans_.end()) found = plans_.emplace(wanted, Prepare(wanted)).first;
    Plan* const plan = found->second.get();
    if (plan == nullptr) return false;
    auto error = plan->graph.execute(handle_, pointers, plan->workspace);
    if (error.is_bad()) Fail(error.get_message());
    return true;
  }

 private:
  std::unique_ptr<Plan> Prepare(const CudnnAttentionPlan& wanted) {
    auto plan = std::make_unique<Plan>();
    DescribeAttention(wanted, plan->graph);
    auto error = plan->graph.build(handle_, {kPlanChoice});
    if (error.is_bad()) {
      LogRefused(wanted, error.get_message());
      return nullptr;
    }
    int64_t bytes = 0;
    error = plan->graph.get_workspace_size(bytes);
    if (error.is_bad()) Fail(error.get_message());
    if (bytes > 0) plan->workspace = WorkspaceOf(wanted, size_t(bytes));
    return plan;
  }

  // A workspace that is too small for another mask stays: graphs know its address.
  void* WorkspaceOf(const CudnnAttentionPlan& wanted, size_t bytes) {
    auto& shared = workspaces_[wanted.WorkspaceKey()];
    if (shared.empty() || shared.back()->bytes < bytes) {
      shared.push_back(std::make_unique<Workspace>(bytes));
    }
    return shared.back()->data;
  }

  cudnnHandle_t handle_ = nullptr;
  std::map<CudnnAttentionPlan, std::unique_ptr<Plan>> plans_;  // Null: there is no plan.
  std::map<decltype(CudnnAttentionPlan().WorkspaceKey()), std::vector<std::unique_ptr<Workspace>>>
      workspaces_;
};

}  // namespace

bool ExecutePlan(Exec& exec, const CudnnAttentionPlan& wanted, const AttentionPointers& pointers) {
  try {
    return Kept<Plans>(exec).Execute(exec, wanted, pointers);
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception& error) {
    Fail(error.what());
  }
}

}  // namespace trainyard::cuda
