// Adapter of a throwing library: `try` is allowed here.
//
// A graph per shape is built through NVIDIA's header-only frontend and kept. cuDNN sees heads
// first, [B, heads, S, d], and takes any strides, so that it reads and writes within the packed
// rows.

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>

#include "common/log.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/padded_attention.h"
#include "kernels/device/attention_core.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {
namespace {

namespace fe = cudnn_frontend;
using Value = std::shared_ptr<fe::graph::Tensor_attributes>;

// The tensors of a call, by the ids that graphs know them by.
enum Id : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };
using Pointers = std::unordered_map<int64_t, void*>;

[[noreturn]] void Fail(const std::string& what) {
  throw DeviceError(DeviceError::Kind::kDevice, "cuDNN: attention: " + what);
}
void ThrowIfError(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) Fail(cudnnGetErrorString(status));
}
void ThrowIfError(cudaError_t error) {
  if (error != cudaSuccess) Fail(cudaGetErrorString(error));
}

struct Shape4 {
  int64_t sequences;
  AttentionDims dims;

  // Heads of `heads` within rows of `row` elements.
  fe::graph::Tensor_attributes Heads(Id id, int64_t heads, int64_t row) const {
    const int64_t s = dims.sequence, d = dims.head_dim;
    return fe::graph::Tensor_attributes()
        .set_uid(id)
        .set_dim({sequences, heads, s, d})
        .set_stride({s * row, d, row, 1});
  }
  int64_t packed() const { return (dims.heads + 2 * dims.kv_heads) * dims.head_dim; }
  fe::graph::Tensor_attributes Query(Id id) const { return Heads(id, dims.heads, packed()); }
  fe::graph::Tensor_attributes Key(Id id) const { return Heads(id, dims.kv_heads, packed()); }
  fe::graph::Tensor_attributes Out(Id id) const {
    return Heads(id, dims.heads, dims.heads * dims.head_dim);
  }
  // log sum exp in natural logarithms, of scaled scores: as attention.h has it.
  fe::graph::Tensor_attributes Lse() const {
    const int64_t a = dims.heads, s = dims.sequence;
    return fe::graph::Tensor_attributes()
        .set_uid(kLse)
        .set_dim({sequences, a, s, 1})
        .set_stride({a * s, s, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }
};

// Makes `value` an output that lies as `where` says.
void Output(const Value& value, const fe::graph::Tensor_attributes& where) {
  value->set_output(true)
      .set_uid(where.get_uid())
      .set_dim(where.get_dim())
      .set_stride(where.get_stride());
}

void DescribeForward(const Shape4& shape, fe::graph::Graph& graph) {
  const auto options =
      fe::graph::SDPA_attributes().set_generate_stats(true).set_causal_mask(true).set_attn_scale(
          float(shape.dims.scale));
  const auto [out, lse] = graph.sdpa(graph.tensor(shape.Query(kQ)), graph.tensor(shape.Key(kK)),
                                     graph.tensor(shape.Key(kV)), options);
  Output(out, shape.Out(kOut));
  Output(lse, shape.Lse());
  lse->set_data_type(fe::DataType_t::FLOAT);
}

void DescribeBackward(const Shape4& shape, fe::graph::Graph& graph) {
  const auto options = fe::graph::SDPA_backward_attributes()
                           .set_causal_mask(true)
                           .set_attn_scale(float(shape.dims.scale))
                           .set_deterministic_algorithm(true);
  const auto [dq, dk, dv] =
      graph.sdpa_backward(graph.tensor(shape.Query(kQ)), graph.tensor(shape.Key(kK)),
                          graph.tensor(shape.Key(kV)), graph.tensor(shape.Out(kOut)),
                          graph.tensor(shape.Out(kDout)), graph.tensor(shape.Lse()), options);
  Output(dq, shape.Query(kDq));
  Output(dk, shape.Key(kDk));
  Output(dv, shape.Key(kDv));
}

enum class Direction : uint8_t { kForward, kBackward };

// Not once a call: once where a plan is sought.
void LogRefused(const Shape4& shape, Direction direction, const std::string& reason) {
  const auto& [s, a, g, d, scale] = shape.dims;
  LogWarning("cudnn_attention_refused",
             {{"direction", direction == Direction::kForward ? "forward" : "backward"},
              {"sequences", shape.sequences},
              {"sequence", s},
              {"heads", a},
              {"kv_heads", g},
              {"head_dim", d},
              {"reason", reason}});
}

struct Plan {
  fe::graph::Graph graph;
  void* workspace = nullptr;
  ~Plan() { cudaFree(workspace); }
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

  // False where cuDNN has no plan for the shape.
  bool Execute(Exec& exec, const Shape4& shape, Direction direction, Pointers pointers) {
    ThrowIfError(cudnnSetStream(handle_, static_cast<cudaStream_t>(exec.stream)));
    const auto& [s, a, g, d, scale] = shape.dims;
    const Key key(direction, shape.sequences, s, a, g, d, scale);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, Prepare(shape, direction)).first;
    Plan* const plan = found->second.get();
    if (plan == nullptr) return false;
    fe::error_t error = plan->graph.execute(handle_, pointers, plan->workspace);
    if (error.is_bad()) Fail(error.get_message());
    return true;
  }

 private:
  using Key = std::tuple<Direction, int64_t, int64_t, int64_t, int64_t, int64_t, double>;

  std::unique_ptr<Plan> Prepare(const Shape4& shape, Direction direction) {
    auto plan = std::make_unique<Plan>();
    plan->graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (direction == Direction::kForward) {
      DescribeForward(shape, plan->graph);
    } else {
      DescribeBackward(shape, plan->graph);
    }
    fe::error_t error = plan->graph.build(handle_, {fe::HeurMode_t::A});
    if (error.is_bad()) {
      LogRefused(shape, direction, error.get_message());
      return nullptr;
    }
    int64_t bytes = 0;
    error = plan->graph.get_workspace_size(bytes);
    if (error.is_bad()) Fail(error.get_message());
    if (bytes > 0) {
      ThrowIfError(cudaMalloc(&plan->workspace, size_t(bytes)));
      // Versions before 9.18 take for granted that it begins with zeroes.
      ThrowIfError(cudaMemset(plan->workspace, 0, size_t(bytes)));
      ThrowIfError(cudaStreamSynchronize(nullptr));  // For which streams of ours do not wait.
    }
    return plan;
  }

  cudnnHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;  // Null: there is none.
};

constexpr int64_t kTokens = 128;  // Sequences are whole tiles of these.

bool Applies(const ConstTensor& qkv, const AttentionDims& dims) {
  const int64_t d = dims.head_dim;
  return qkv.dtype == DType::kBF16 && d >= 64 && d <= 256 && d % 8 == 0;
}

// Whether vectors of 16 bytes can be read: cuDNN takes that for granted.
bool Aligned(const Pointers& pointers) {
  for (const auto& [id, data] : pointers) {
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  }
  return true;
}

bool Execute(Exec& exec, const Shape4& shape, Direction direction, const Pointers& pointers) {
  if (!Aligned(pointers)) {
    static std::once_flag logged;
    std::call_once(logged, [&] { LogRefused(shape, direction, "not aligned to 16 bytes"); });
    return false;
  }
  try {
    return Kept<Plans>(exec).Execute(exec, shape, direction, pointers);
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception& error) {
    Fail(error.what());
  }
}

}  // namespace

bool CudnnAttention(Exec& exec, const AttentionForwardArgs& args) {
  if (!Applies(args.qkv, args.dims)) return false;
  if (args.dims.sequence % kTokens != 0) return PadSequences(exec, args, kTokens, CudnnAttention);
  const auto core = CoreOf<bf16>(args);
  const auto in = [](const bf16* data) { return const_cast<bf16*>(data); };
  return Execute(exec, {core.sequences, args.dims}, Direction::kForward,
                 {{kQ, in(core.q.data)},
                  {kK, in(core.k.data)},
                  {kV, in(core.v.data)},
                  {kOut, core.out.data},
                  {kLse, core.lse}});
}

bool CudnnAttention(Exec& exec, const AttentionBackwardArgs& args) {
  if (!Applies(args.qkv, args.dims)) return false;
  if (args.dims.sequence % kTokens != 0) return PadSequences(exec, args, kTokens, CudnnAttention);
  const auto core = CoreOf<bf16>(args);
  const auto in = [](const auto* data) {
    return const_cast<void*>(static_cast<const void*>(data));
  };
  return Execute(exec, {core.sequences, args.dims}, Direction::kBackward,
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
