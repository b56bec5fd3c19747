#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/failure.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {
namespace {

// The most dynamic shared memory that a kernel of this process may have.
class SharedLimits {
 public:
  void Raise(const void* kernel, size_t bytes) {
    const MutexLock lock(mutex_);
    size_t& limit = limits_[kernel];
    if (bytes <= limit) return;
    ThrowIfError(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
        "shared memory");
    limit = bytes;
  }

 private:
  Mutex mutex_;
  std::unordered_map<const void*, size_t> limits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void ThrowIfError(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw DeviceError(DeviceError::Kind::kDevice,
                    WithFailure(absl::StrCat("CUDA: ", what, ": ", cudaGetErrorString(error))));
}

void AllowShared(const void* kernel, size_t bytes) {
  static SharedLimits limits;
  limits.Raise(kernel, bytes);
}

Context::~Context() {
  kept_.clear();
  for (const Block& block : scratch_) cudaFree(block.data);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

cudaStream_t Context::MakeStream() {
  ThrowIfError(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  return stream_;
}

std::byte* Context::Scratch(size_t bytes) {
  constexpr size_t kLeast = size_t{1} << 20;
  if (scratch_.empty() || scratch_.back().bytes < bytes) {
    // Twice the last one, so that all blocks together have at most twice the size of the largest.
    const size_t last = scratch_.empty() ? kLeast / 2 : scratch_.back().bytes;
    Block block{.data = nullptr, .bytes = std::max(bytes, 2 * last)};
    ThrowIfError(cudaMalloc(&block.data, block.bytes), "scratch memory");
    scratch_.push_back(block);
  }
  return static_cast<std::byte*>(scratch_.back().data);
}

Context& ContextOf(Exec& exec) {
  if (exec.context == nullptr) exec.context = std::make_shared<Context>();
  return *static_cast<Context*>(exec.context.get());
}

Exec NewExec(int threads) {
  const Failure record;  // Makes the memory of messages: a stream that is captured cannot.
  const auto context = std::make_shared<Context>();
  return {.device = DeviceKind::kCuda,
          .threads = threads,
          .stream = context->MakeStream(),
          .context = context};
}

std::byte* Scratch(Exec& exec, size_t bytes) { return ContextOf(exec).Scratch(bytes); }

}  // namespace trainyard::cuda
