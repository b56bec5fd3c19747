#include "common/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/files.h"

namespace trainyard {
namespace {

constexpr char kLimit[] = "/sys/fs/cgroup/memory.max";

// A file that is one number.
std::optional<uint64_t> NumberIn(const std::string& path) {
  const auto text = ReadFile(path, 4096);
  uint64_t number = 0;
  if (!text.ok() || !absl::SimpleAtoi(*text, &number)) return std::nullopt;
  return number;
}

}  // namespace

uint64_t HostMemoryBytes() {
  const uint64_t bytes = uint64_t(::sysconf(_SC_PHYS_PAGES)) * uint64_t(::sysconf(_SC_PAGESIZE));
  const auto limit = NumberIn(kLimit);
  return limit && *limit > 0 ? std::min(bytes, *limit) : bytes;
}

uint64_t AvailableMemoryBytes() {
  uint64_t bytes = uint64_t{1} << 63;
  const auto info = ReadFile("/proc/meminfo", 64 << 10);
  for (const absl::string_view line : absl::StrSplit(info.value_or(""), '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t kib = 0;
    if (words.size() > 1 && words[0] == "MemAvailable:" && absl::SimpleAtoi(words[1], &kib)) {
      bytes = kib << 10;
    }
  }
  const auto limit = NumberIn(kLimit);
  const auto used = NumberIn("/sys/fs/cgroup/memory.current");
  if (limit && used) bytes = std::min(bytes, *limit - std::min(*limit, *used));
  return bytes;
}

}  // namespace trainyard
