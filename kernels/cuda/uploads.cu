#include <algorithm>
#include <cstring>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/uploads.h"

namespace trainyard::cuda {

Uploads::~Uploads() {
  for (const Piece& piece : pieces_) {
    if (piece.copied != nullptr) cudaEventSynchronize(piece.copied);
    if (piece.copied != nullptr) cudaEventDestroy(piece.copied);
    if (piece.memory != nullptr) cudaFreeHost(piece.memory);
  }
}

Uploads::Piece& Uploads::NextPiece() {
  Piece& piece = pieces_[next_++ % pieces_.size()];
  if (piece.memory == nullptr) {
    ThrowIfError(cudaEventCreateWithFlags(&piece.copied, cudaEventDisableTiming), "event");
    ThrowIfError(cudaMallocHost(&piece.memory, kPieceBytes), "pinned memory");
  }
  ThrowIfError(cudaEventSynchronize(piece.copied), "copy to the device");
  return piece;
}

void Uploads::Copy(cudaStream_t stream, void* device, const void* host, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t part = std::min(bytes - at, kPieceBytes);
    const Piece& piece = NextPiece();
    std::memcpy(piece.memory, static_cast<const std::byte*>(host) + at, part);
    ThrowIfError(cudaMemcpyAsync(static_cast<std::byte*>(device) + at, piece.memory, part,
                                 cudaMemcpyDefault, stream),
                 "copy to the device");
    ThrowIfError(cudaEventRecord(piece.copied, stream), "event");
  }
}

}  // namespace trainyard::cuda
