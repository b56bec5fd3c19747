// Divides a task's scratch memory (Context::scratch) into arrays.

#pragma once

#include <cstddef>
#include <cstdint>

namespace trainyard::cpu {

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Hands out pieces of a task's scratch memory, aligned to 64 bytes. With null as the memory, only
// counts the bytes.
class Pieces {
 public:
  explicit Pieces(std::byte* data) : next_(data) {}
  template <typename T>
  void Take(T*& piece, int64_t elements) {
    piece = reinterpret_cast<T*>(next_);
    next_ += RoundUp(elements * int64_t(sizeof(T)), 64);
  }
  size_t BytesFrom(const std::byte* data) const { return size_t(next_ - data); }

 private:
  std::byte* next_;
};

}  // namespace trainyard::cpu
