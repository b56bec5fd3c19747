#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/cuda/attention/padded_attention.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.h"

namespace trainyard::cuda {
namespace {

// The padded tensors of one kind of call, in the order in which the call asks for them. Calls that
// differ only in their window share the tensors.
struct Kind {
  std::vector<void*> memory;
  bool used = false;  // A call was computed in the memory, so graphs may know its addresses.
  std::set<int64_t> refused;  // Windows: no memory, or the called kernel refused the call.
  Kind() = default;
  Kind(const Kind&) = delete;
  ~Kind() {
    for (void* data : memory) cudaFree(data);
  }
};

struct Kinds {
  // Backward, tokens, S, heads, key heads, head dim, head dim of values.
  using Key = std::tuple<bool, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;
  std::map<Key, Kind> by_shape;
};

class Padding {
 public:
  Padding(Exec& exec, const ConstTensor& qkv, const AttentionDims& dims, int64_t tokens)
      : exec_(exec), qkv_(qkv), dims_(dims), padded_(dims) {
    padded_.sequence = PaddedSequence(qkv.dtype, dims, tokens);
  }

  bool applies() const { return padded_.sequence > 0; }
  const AttentionDims& dims() const { return padded_; }

  // Returns false if such a call was refused before.
  bool Begin(bool backward) {
    kind_ = &Kept<Kinds>(exec_).by_shape[{backward, qkv_.shape.rows(), dims_.sequence, dims_.heads,
                                          dims_.kv_heads, dims_.head_dim, dims_.value_dim}];
    return !refused();
  }
  // Such calls are not tried again.
  bool Refuse() {
    kind_->refused.insert(dims_.mask.window);
    if (kind_->used) return false;
    for (void* data : kind_->memory) cudaFree(data);
    kind_->memory.clear();
    return false;
  }
  bool refused() const { return kind_->refused.contains(dims_.mask.window); }

  // Returns the padded tensor for a tensor with `width` elements a token: zero except where rows
  // are copied.
  Tensor Of(const ConstTensor& tensor, int64_t width) {
    Tensor padded;
    padded.dtype = tensor.dtype;
    padded.shape = {Runs(tensor, width) * padded_.sequence, width};
    if (refused()) return padded;
    if (next_ == kind_->memory.size()) {
      void* data = nullptr;
      if (cudaMalloc(&data, padded.bytes()) != cudaSuccess) {
        cudaGetLastError();  // Clears the error, which would stay.
        Refuse();
        return padded;
      }
      kind_->memory.push_back(data);
      ThrowIfError(cudaMemsetAsync(data, 0, padded.bytes(), StreamOf(exec_)), "padded attention");
    }
    padded.data = kind_->memory[next_++];
    return padded;
  }
  Tensor CopyOf(const ConstTensor& tensor, int64_t width) {
    const Tensor padded = Of(tensor, width);
    if (padded.data != nullptr) {
      Copy(padded.data, padded_.sequence, tensor.data, dims_.sequence, {tensor, width});
    }
    return padded;
  }
  void CopyBack(const Tensor& tensor, int64_t width, const Tensor& padded) {
    kind_->used = true;
    Copy(tensor.data, dims_.sequence, padded.data, padded_.sequence, {tensor, width});
  }

 private:
  struct Rows {
    ConstTensor tensor;
    int64_t width;
  };

  // The number of sequences, or of heads of sequences if the tensor is stored by head.
  int64_t Runs(const ConstTensor& tensor, int64_t width) const {
    return tensor.elements() / (dims_.sequence * width);
  }
  void Copy(void* to, int64_t to_tokens, const void* from, int64_t from_tokens, const Rows& rows) {
    const size_t token = size_t(rows.width) * SizeOf(rows.tensor.dtype);
    ThrowIfError(
        cudaMemcpy2DAsync(to, size_t(to_tokens) * token, from, size_t(from_tokens) * token,
                          size_t(dims_.sequence) * token, size_t(Runs(rows.tensor, rows.width)),
                          cudaMemcpyDeviceToDevice, StreamOf(exec_)),
        "padded attention");
  }

  Exec& exec_;
  const ConstTensor qkv_;
  const AttentionDims dims_;
  AttentionDims padded_;
  Kind* kind_ = nullptr;
  size_t next_ = 0;
};

}  // namespace

bool PadSequences(Exec& exec, const PackedAttentionForwardArgs& args, int64_t tokens,
                  Attempt<PackedAttentionForwardArgs> attention) {
  Padding padding(exec, args.qkv, args.dims, tokens);
  if (!padding.applies() || !padding.Begin(false)) return false;
  const int64_t packed = args.qkv.shape.back(), width = args.out.shape.back();
  const Tensor qkv = padding.CopyOf(args.qkv, packed);
  const Tensor out = padding.Of(args.out, width);
  const Tensor lse = padding.Of(args.lse, 1);
  if (padding.refused()) return false;
  if (!attention(exec, {.qkv = qkv, .dims = padding.dims(), .out = out, .lse = lse})) {
    return padding.Refuse();
  }
  padding.CopyBack(args.out, width, out);
  padding.CopyBack(args.lse, 1, lse);
  return true;
}

bool PadSequences(Exec& exec, const PackedAttentionBackwardArgs& args, int64_t tokens,
                  Attempt<PackedAttentionBackwardArgs> attention) {
  Padding padding(exec, args.qkv, args.dims, tokens);
  if (!padding.applies() || !padding.Begin(true)) return false;
  const int64_t packed = args.qkv.shape.back(), width = args.out.shape.back();
  const PackedAttentionBackwardArgs padded = {.qkv = padding.CopyOf(args.qkv, packed),
                                              .out = padding.CopyOf(args.out, width),
                                              .lse = padding.CopyOf(args.lse, 1),
                                              .dout = padding.CopyOf(args.dout, width),
                                              .dims = padding.dims(),
                                              .dqkv = padding.Of(args.dqkv, packed),
                                              .deterministic = args.deterministic};
  if (padding.refused()) return false;
  if (!attention(exec, padded)) return padding.Refuse();
  padding.CopyBack(args.dqkv, packed, padded.dqkv);
  return true;
}

}  // namespace trainyard::cuda
