// Adapter of a throwing library: `try` is allowed here.
//
// Builds a graph for each shape through NVIDIA's header-only frontend, and keeps it.

#include <cuda_runtime_api.h>

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/log.h"
#include "kernels/attention_core.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cudnn_attention_graph.h"
#include "kernels/cuda/padded_attention.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {
namespace {

using Pointers = std::unordered_map<int64_t, void*>;  // By AttentionTensor.

[[noreturn]] void Fail(const std::string& what) {
  throw DeviceError(DeviceError::Kind::kDevice, "cuDNN: attention: " + what);
}
void ThrowIfError(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) Fail(cudnnGetErrorString(status));
}
void ThrowIfError(cudaError_t error) {
  if (error != cudaSuccess) Fail(cudaGetErrorString(error));
}

// Called when a plan is sought, so not at every call.
void LogRefused(const CudnnAttentionPlan& wanted, const std::string& reason) {
  LogWarning("cudnn_attention_refused",
             {{"direction", wanted.pass == AttentionPass::kForward ? "forward" : "backward"},
              {"sequences", wanted.sequences},
              {"sequence", wanted.dims.sequence},
              {"heads", wanted.dims.heads},
              {"kv_heads", wanted.dims.kv_heads},
              {"head_dim", wanted.dims.head_dim},
              {"value_dim", wanted.dims.value_dim},
              {"reason", reason}});
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
  bool Execute(Exec& exec, const CudnnAttentionPlan& wanted, Pointers pointers) {
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

// Whether vectors of 16 bytes can be read. cuDNN assumes this.
bool Aligned(const Pointers& pointers) {
  for (const auto& [id, data] : pointers) {
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  }
  return true;
}

bool Execute(Exec& exec, const CudnnAttentionPlan& wanted, const Pointers& pointers) {
  if (!Aligned(pointers)) {
    static std::once_flag logged;
    std::call_once(logged, [&] { LogRefused(wanted, "not aligned to 16 bytes"); });
    return false;
  }
  try {
    return Kept<Plans>(exec).Execute(exec, wanted, pointers);
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception& error) {
    Fail(error.what());
  }
}

}  // namespace

bool CudnnAttention(Exec& exec, const PackedAttentionForwardArgs& args) {
  if (!CudnnTakes(args.qkv.dtype, args.dims)) return false;
  if (args.dims.sequence % kCudnnTokens != 0) {
    return PadSequences(exec, args, kCudnnTokens, CudnnAttention);
  }
  const auto core = CoreOf<bf16>(ViewsOf(args));
  const auto in = [](const bf16* data) { return const_cast<bf16*>(data); };
  return Execute(exec, {AttentionPass::kForward, core.sequences, args.dims},
                 {{kQ, in(core.q.data)},
                  {kK, in(core.k.data)},
                  {kV, in(core.v.data)},
                  {kOut, core.out.data},
                  {kLse, core.lse}});
}

bool CudnnAttention(Exec& exec, const PackedAttentionBackwardArgs& args) {
  if (!CudnnTakes(args.qkv.dtype, args.dims)) return false;
  if (args.dims.sequence % kCudnnTokens != 0) {
    return PadSequences(exec, args, kCudnnTokens, CudnnAttention);
  }
  const auto core = CoreOf<bf16>(ViewsOf(args));
  const auto in = [](const auto* data) {
    return const_cast<void*>(static_cast<const void*>(data));
  };
  return Execute(exec, {AttentionPass::kBackward, core.sequences, args.dims, args.deterministic},
                 {{kQ, in(core.q.data)},
                  {kK, in(core.k.data)},
                  {kV, in(core.v.data)},
                  {kOut, in(core.out.data)},
                  {kDout, in(core.dout.data)},
                  {kLse, in(core.lse)},
                  {kDq, core.dq.data},
                  {kDk, core.dk.data},
                  {kDv, core.dv.data}});
}

}  // namespace trainyard::cuda
