#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {

void ThrowIfError(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw DeviceError(DeviceError::Kind::kDevice,
                    std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
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
  const auto context = std::make_shared<Context>();
  return {.device = DeviceKind::kCuda,
          .threads = threads,
          .stream = context->MakeStream(),
          .context = context};
}

std::byte* Scratch(Exec& exec, size_t bytes) { return ContextOf(exec).Scratch(bytes); }

}  // namespace trainyard::cuda
