// How a kernel ends with a message, for programmer errors that only the device can see. The kernel
// writes the message to memory of the host, and traps. Errors of later calls then contain the
// message (failure_text.h). CUDA does not promise to show what printf has written when a kernel
// traps.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/failure_text.h"
#include "kernels/cuda/row.h"

namespace trainyard::cuda {

// A text in which each % stands for one of kValues values. The text is a constant in words of 16
// bytes, because a kernel stores each of these words in one access.
template <int kValues>
struct Message {
  static constexpr int kWords = 6;
  Words words[kWords] = {};

  template <size_t kLength>
  consteval Message(const char (&text)[kLength]) {
    static_assert(kLength <= sizeof(words));
    int places = 0;
    for (size_t i = 0; i < kLength; ++i) {
      words[i / 16].v[i % 16 / 4] |= uint32_t{uint8_t(text[i])} << i % 4 * 8;
      places += text[i] == '%' ? 1 : 0;
    }
    if (places != kValues) throw "each % stands for one value";
  }
};

// What the first thread that failed has written.
struct alignas(16) FailureRecord {
  static constexpr int kMostValues = 4;
  char text[Message<0>::kWords * sizeof(Words)];
  int64_t values[kMostValues];
  int failures;  // The number of threads that have failed.
};

// A member of a kernel's arguments, made on the host. For example,
//   if (row >= rows) args.fail("gather rows: row % of %", row, rows);
class Failure {
 public:
  Failure();  // Throws DeviceError if the host has no memory that the device can write.

  // Ends the kernel, and with it the process.
  template <typename... Values>
  [[noreturn]] __device__ void operator()(
      const std::type_identity_t<Message<int(sizeof...(Values))>>& message,
      Values... values) const {
    constexpr int kMost = FailureRecord::kMostValues;
    // The first thread writes and traps. The trap also ends the others, which wait for it.
    if (atomicAdd(&record_->failures, 1) > 0) {
      for (;;) __nanosleep(1000);
    }
    const int64_t all[kMost] = {int64_t(values)...};
#pragma unroll
    for (int i = 0; i < kMost; i += 2) {
      StoreWords(record_->values + i, std::bit_cast<Words>(Pack<int64_t, 2>{all[i], all[i + 1]}));
    }
#pragma unroll
    for (int i = 0; i < Message<0>::kWords; ++i) {
      StoreWords(record_->text + i * sizeof(Words), message.words[i]);
    }
    __threadfence_system();  // The host has the message before the kernel ends.
#ifdef TRAINYARD_CUDA_EMULATION
    std::fputs((FailureText() + "\n").c_str(), stderr);  // Where death tests look.
#endif
    __trap();
    __builtin_unreachable();  // Or kernels would keep their registers for later code.
  }

 private:
  FailureRecord* record_;
};

}  // namespace trainyard::cuda
