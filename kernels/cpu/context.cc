#include "kernels/cpu/context.h"

#include "common/check.h"

namespace trainyard::cpu {

std::byte* Scratch::Reserve(size_t bytes) {
  constexpr size_t kAlign = 64;
  if (bytes > bytes_) {
    bytes_ = (bytes + kAlign - 1) / kAlign * kAlign;
    data_.reset();
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlign, bytes_)));
    CHECK(data_ != nullptr) << "no memory for " << bytes_ << " bytes of scratch";
  }
  return data_.get();
}

Context& ContextOf(Exec& exec) {
  if (exec.context == nullptr) exec.context = std::make_shared<Context>();
  Context& context = *static_cast<Context*>(exec.context.get());
  if (context.scratch.size() < size_t(exec.threads)) context.scratch.resize(exec.threads);
  return context;
}

}  // namespace trainyard::cpu
