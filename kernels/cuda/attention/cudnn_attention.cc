// Calls cuDNN on the tensors of attention: where they are, and with which plan.

#include "kernels/cuda/attention/cudnn_attention.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "common/log.h"
#include "kernels/attention/attention_core.h"
#include "kernels/cuda/attention/cudnn_attention_call.h"
#include "kernels/cuda/attention/cudnn_plan_of.h"
#include "kernels/cuda/attention/padded_attention.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/failure_text.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {

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

namespace {

void ThrowIfError(cudaError_t error) {
  if (error == cudaSuccess) return;
  const std::string what = std::string("cuDNN: attention: ") + cudaGetErrorString(error);
  throw DeviceError(DeviceError::Kind::kDevice, WithFailure(what));
}

// Whether vectors of 16 bytes can be read. cuDNN assumes this.
bool Aligned(const AttentionPointers& pointers) {
  for (const auto& [id, data] : pointers) {
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  }
  return true;
}

bool Execute(Exec& exec, const CudnnAttentionPlan& wanted, const AttentionPointers& pointers) {
  if (!wanted.IsUsed()) return false;
  if (!Aligned(pointers)) {
    static std::once_flag logged;
    std::call_once(logged, [&] { LogRefused(wanted, "not aligned to 16 bytes"); });
    return false;
  }
  return ExecutePlan(exec, wanted, pointers);
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

}  // namespace

bool CudnnAttention(Exec& exec, const PackedAttentionForwardArgs& args) {
  const std::optional<CudnnAttentionPlan> plan = CudnnPlanOf(args);
  if (!plan) return false;
  if (plan->dims.sequence != args.dims.sequence) {
    return PadSequences(exec, args, kCudnnTokens, CudnnAttention);
  }
  const auto core = CoreOf<bf16>(ViewsOf(args));
  const auto in = [](const bf16* data) { return const_cast<bf16*>(data); };
  return Execute(exec, *plan,
                 {{kQ, in(core.q.data)},
                  {kK, in(core.k.data)},
                  {kV, in(core.v.data)},
                  {kOut, core.out.data},
                  {kLse, core.lse}});
}

bool CudnnAttention(Exec& exec, const PackedAttentionBackwardArgs& args) {
  const std::optional<CudnnAttentionPlan> plan = CudnnPlanOf(args);
  if (!plan) return false;  // Before memory for padded copies is taken.
  if (plan->dims.sequence != args.dims.sequence) {
    return PadSequences(exec, args, kCudnnTokens, CudnnAttention);
  }
  const auto core = CoreOf<bf16>(ViewsOf(args));
  const auto in = [](const auto* data) {
    return const_cast<void*>(static_cast<const void*>(data));
  };
  return Execute(exec, *plan,
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
  const bool done = Execute(exec, CudnnPlanOfPart(core),
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
  return Execute(exec, CudnnPlanOfPart(core),
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
