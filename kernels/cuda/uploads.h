// Copies from the host's memory to the device that do not wait for the stream. CUDA itself may wait
// until a stream is empty if it is given pageable memory, so the bytes go through pinned memory of
// our own.

#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>

namespace trainyard::cuda {

// Of one stream. Not thread-safe.
class Uploads {
 public:
  Uploads() = default;
  Uploads(const Uploads&) = delete;
  ~Uploads();

  // Enqueues the copy to memory of Backend::Allocate or AllocateOnHost. On return the host's memory
  // may be reused. Waits only if all pinned memory is still being copied, or for the stream if
  // `device` is AllocateOnHost's.
  void Copy(cudaStream_t stream, void* device, const void* host, size_t bytes);

 private:
  static constexpr size_t kPieceBytes = size_t{1} << 20;
  // Pinned memory, and the event of the last copy from there. Created at the first use.
  struct Piece {
    void* memory = nullptr;
    cudaEvent_t copied = nullptr;
  };

  Piece& NextPiece();

  std::array<Piece, 8> pieces_;  // Used in turn.
  size_t next_ = 0;
};

}  // namespace trainyard::cuda
