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
#include "kernels/attention/attention_core.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/attention/cudnn_attention_graph.h"
#include "kernels/cuda/attention/padded_attention.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/failure_text.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {
namespace {

using Pointers = std::unordered_map<int64_t, void*>;  // By AttentionTensor.

[[noreturn]] void Fail(const std::string& what) {
  throw DeviceError(DeviceError::Kind::kDevice, WithFailure("cuDNN: attention: " + what));
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
              {"queries", wanted.queries()},
              {"keys", wanted.keys()},
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
  if (!wanted.IsUsed()) return false;
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

// The lse of a part's rows, side by side as cuDNN wants them: [sequences, heads, part.q_rows].
template <typename Core>
class PackedLse {
 public:
  PackedLse(Exec& exec, const Core& core) : exec_(exec), core_(core) {
    if (!whole()) packed_ = ScratchOf<float>(exec, runs() * core.part.q_rows);
  }
  void* data() const { return whole() ? const_cast<float*>(core_.lse) : packed_; }
  void CopyIn() const { Copy(packed_, core_.part.q_rows, rows(), core_.dims.sequence); }
  void CopyOut() const {
    Copy(const_cast<float*>(rows()), core_.dims.sequence, packed_, core_.part.q_rows);
  }

 private:
  bool whole() const { return core_.part.q_rows == core_.dims.sequence; }
  int64_t runs() const { return core_.sequences * core_.dims.heads; }
  const float* rows() const { return core_.lse + core_.part.q_begin; }
  void Copy(float* to, int64_t to_rows, const float* from, int64_t from_rows) const {
    if (whole()) return;
    constexpr size_t kSize = sizeof(float);
    ThrowIfError(cudaMemcpy2DAsync(to, size_t(to_rows) * kSize, from, size_t(from_rows) * kSize,
                                   size_t(core_.part.q_rows) * kSize, size_t(runs()),
                                   cudaMemcpyDeviceToDevice,
                                   static_cast<cudaStream_t>(exec_.stream)));
  }

  Exec& exec_;
  const Core& core_;
  float* packed_ = nullptr;
};

// Where a part's first rows are.
class FirstRows {
 public:
  template <typename Core>
  explicit FirstRows(const Core& core) : query_(core.part.q_begin), key_(core.part.kv_begin) {}

  template <typename T>
  void* queries(const Heads<T>& of) const {
    return Mutable(of.data + query_ * of.row);
  }
  template <typename T>
  void* keys(const Heads<T>& of) const {
    return Mutable(of.data + key_ * of.row);
  }

 private:
  static void* Mutable(const void* data) { return const_cast<void*>(data); }
  const int64_t query_, key_;
};

template <typename Core>
CudnnAttentionPlan PlanOf(AttentionPass pass, const Core& core) {
  CudnnAttentionPlan plan{pass, core.sequences, core.dims};
  plan.dims.mask = core.part.mask;
  plan.part = PartRows{.queries = core.part.q_rows,
                       .keys = core.part.kv_rows,
                       .query_stride = core.q.row,
                       .key_stride = core.k.row};
  return plan;
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
  CudnnAttentionPlan whole{AttentionPass::kBackward, args.qkv.shape[0] / args.dims.sequence,
                           args.dims, args.deterministic};
  whole.dims.sequence = PaddedSequence(args.qkv.dtype, args.dims, kCudnnTokens);
  if (!whole.IsUsed()) return false;  // Before memory for padded copies is taken.
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

bool CudnnAttentionPart(Exec& exec, const AttentionForwardCore<bf16, bf16>& core) {
  const FirstRows rows(core);
  const PackedLse lse(exec, core);
  const bool done = Execute(exec, PlanOf(AttentionPass::kForward, core),
                            {{kQ, rows.queries(core.q)},
                             {kK, rows.keys(core.k)},
                             {kV, rows.keys(core.v)},
                             {kOut, rows.queries(core.out)},
                             {kLse, lse.data()}});
  if (done) lse.CopyOut();
  return done;
}

bool CudnnAttentionPart(Exec& exec, const AttentionBackwardCore<bf16, bf16>& core) {
  const FirstRows rows(core);
  const PackedLse lse(exec, core);
  lse.CopyIn();
  CudnnAttentionPlan plan = PlanOf(AttentionPass::kBackward, core);
  plan.deterministic = core.deterministic;
  return Execute(exec, plan,
                 {{kQ, rows.queries(core.q)},
                  {kK, rows.keys(core.k)},
                  {kV, rows.keys(core.v)},
                  {kOut, rows.queries(core.out)},
                  {kDout, rows.queries(core.dout)},
                  {kLse, lse.data()},
                  {kDq, rows.queries(core.dq)},
                  {kDk, rows.keys(core.dk)},
                  {kDv, rows.keys(core.dv)}});
}

}  // namespace trainyard::cuda
