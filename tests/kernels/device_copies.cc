#include "tests/kernels/device_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace trainyard::testing {
namespace {

constexpr size_t kGuardBytes = 1024, kAlignment = 256;
constexpr size_t kMostKeptBytes = size_t{1} << 16;  // The emulation is slower with more.

const std::byte* EndOf(std::span<const std::byte> bytes) { return bytes.data() + bytes.size(); }

// Eight guard bytes around a tensor of `dtype`: a signalling NaN, and a large integer. Arithmetic
// quiets the NaN, and fields have different payloads: a kernel changes guard bytes also where it
// computes from them, and where it copies those of another field.
uint64_t GuardOf(DType dtype, int field) {
  const auto payload = uint64_t(field);
  switch (SizeOf(dtype)) {
    case 8:
      return 0x7FF0'0000'0000'0000 | payload;
    case 4:
      return (0x7F80'0000 | payload) * 0x1'0000'0001;
    default:
      return (0x7F80 | payload) * 0x1'0001'0001'0001;
  }
}

// Several times as fast as std::ranges::equal.
bool IsEqual(std::span<const std::byte> a, const std::byte* b) {
  return a.empty() || std::memcmp(a.data(), b, a.size()) == 0;
}

// The memory of this thread's last call. A GPU takes longer to allocate memory than to run a test's
// kernel.
Buffer& KeptMemory() {
  thread_local Buffer memory;
  return memory;
}
Buffer TakeMemory(const Backend& backend, size_t bytes) {
  Buffer kept = std::move(KeptMemory());
  if (kept.bytes() >= bytes) return kept;
  absl::StatusOr<Buffer> memory = backend.Allocate(bytes);
  CHECK(memory.ok()) << memory.status();
  return *std::move(memory);
}

}  // namespace

void DeviceCopies::PlaceCopies() {
  std::ranges::sort(fields_, std::less<>(), [](const Field& field) { return field.host.data(); });
  for (Field& field : fields_) {
    if (copies_.empty() || field.host.data() >= EndOf(copies_.back().host)) {
      copies_.push_back(
          {.host = field.host, .field = field.number, .guard = GuardOf(field.dtype, field.number)});
    }
    field.copy = copies_.size() - 1;
    std::span<std::byte>& host = copies_.back().host;
    const size_t bytes = size_t(EndOf(field.host) - host.data());
    host = {host.data(), std::max(host.size(), bytes)};
  }
  for (Copy& copy : copies_) {
    const size_t past = reinterpret_cast<uintptr_t>(copy.host.data()) % kAlignment;
    copy.begin = image_bytes_;
    copy.offset = RoundUp(copy.begin + kGuardBytes, kAlignment) + past;
    copy.end = image_bytes_ = copy.offset + copy.host.size() + kGuardBytes;
  }
}

void DeviceCopies::Upload() {
  PlaceCopies();
  if (copies_.empty()) return;
  image_.resize(image_bytes_);
  for (const Copy& copy : copies_) {
    std::byte* const data = &image_[copy.offset];
    std::ranges::copy(copy.host, data);
    for (size_t i = 0; i < kGuardBytes; i += sizeof(copy.guard)) {
      std::memcpy(data - kGuardBytes + i, &copy.guard, sizeof(copy.guard));
      std::memcpy(data + copy.host.size() + i, &copy.guard, sizeof(copy.guard));
    }
  }
  memory_ = TakeMemory(backend_, image_bytes_);
  backend_.CopyToDevice(exec_, memory_.data(), image_.data(), image_bytes_);
  for (const Field& field : fields_) {
    std::byte* const data = memory_.data() + OffsetOf(field);
    std::memcpy(args_ + field.place, &data, sizeof(data));
  }
}

void DeviceCopies::CopyBack() {
  if (copies_.empty()) return;
  std::vector<std::byte> got(image_bytes_);
  backend_.CopyToHost(exec_, got.data(), memory_.data(), image_bytes_);
  if (memory_.bytes() <= kMostKeptBytes) KeptMemory() = std::move(memory_);
  for (const Field& field : fields_) {
    if (field.writable) {
      std::copy_n(&got[OffsetOf(field)], field.host.size(), field.host.data());
    }
  }
  for (const Copy& copy : copies_) {
    CheckGuards(copy, got);
    if (!IsEqual(copy.host, &got[copy.offset])) {
      ADD_FAILURE() << "The kernel wrote to memory that field " << copy.field
                    << " of its arguments declares as const.";
    }
  }
}

void DeviceCopies::CheckGuards(const Copy& copy, std::span<const std::byte> got) const {
  std::vector<ptrdiff_t> written;
  const auto check = [&](size_t begin, size_t end) {
    if (IsEqual(got.subspan(begin, end - begin), &image_[begin])) return;
    for (size_t at = begin; at < end; ++at) {
      if (got[at] != image_[at]) written.push_back(ptrdiff_t(at) - ptrdiff_t(copy.offset));
    }
  };
  check(copy.begin, copy.offset);
  check(copy.offset + copy.host.size(), copy.end);
  if (written.empty()) return;
  ADD_FAILURE() << "The kernel changed " << written.size() << " bytes outside of the "
                << copy.host.size() << " bytes of field " << copy.field
                << " of its arguments, at offsets from " << written.front() << " to "
                << written.back() << '.';
}

size_t DeviceCopies::OffsetOf(const Field& field) const {
  const Copy& copy = copies_[field.copy];
  return copy.offset + size_t(field.host.data() - copy.host.data());
}

}  // namespace trainyard::testing
