#include <cuda_runtime.h>

#include <atomic>
#include <new>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/failure.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {
namespace {

// Pinned memory, which the device reaches at the host's address, and which can be read when the
// device has failed. Never freed: kernels in graphs hold its address. Null: no kernel needs it yet.
std::atomic<FailureRecord*>& TheRecord() {
  static std::atomic<FailureRecord*> record = nullptr;
  return record;
}

FailureRecord* MakeRecord() {
  void* memory = nullptr;
  if (cudaMallocHost(&memory, sizeof(FailureRecord)) != cudaSuccess) {
    throw DeviceError(DeviceError::Kind::kDevice, "CUDA: no pinned memory for messages of kernels");
  }
  return TheRecord() = new (memory) FailureRecord();
}

}  // namespace

Failure::Failure() {
  static FailureRecord* const record = MakeRecord();
  record_ = record;
}

std::string FailureText() {
  const FailureRecord* const record = TheRecord();
  std::string text;
  if (record == nullptr) return text;
  const int64_t* next = record->values;
  for (const char* c = record->text; *c != '\0'; ++c) {
    if (*c == '%') {
      absl::StrAppend(&text, *next++);
    } else {
      text.push_back(*c);
    }
  }
  return text;
}

std::string WithFailure(const std::string& error) {
  const std::string text = FailureText();
  return text.empty() ? error : absl::StrCat(error, ": ", text);
}

}  // namespace trainyard::cuda
