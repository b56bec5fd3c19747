#include "common/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/files.h"

namespace trainyard {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

// Fields of /proc/self/stat after the program's name, which may contain blanks: proc(5).
constexpr size_t kUserTicks = 11, kSystemTicks = 12, kStartTicks = 19, kVirtualBytes = 20,
                 kResidentPages = 21;

MetricFamily Value(const char* name, const char* help, MetricType type, double value) {
  MetricFamily family = {.name = name, .help = help, .type = type, .metric = {{}}};
  (type == MetricType::Counter ? family.metric[0].counter.value : family.metric[0].gauge.value) =
      value;
  return family;
}

std::vector<double> StatFields() {
  const absl::StatusOr<std::string> stat = ReadFile("/proc/self/stat");
  const size_t end = stat.ok() ? stat->rfind(") ") : std::string::npos;
  if (end == std::string::npos) return {};
  std::vector<double> fields;
  for (const absl::string_view word : absl::StrSplit(stat->substr(end + 2), ' ')) {
    // The state is a letter.
    if (!absl::SimpleAtod(word, &fields.emplace_back())) fields.back() = 0;
  }
  return fields;
}

// When the machine was booted, in seconds since 1970.
std::optional<double> BootTime() {
  const absl::StatusOr<std::string> stat = ReadFile("/proc/stat");
  if (!stat.ok()) return std::nullopt;
  for (absl::string_view line : absl::StrSplit(*stat, '\n')) {
    double seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &seconds)) return seconds;
  }
  return std::nullopt;
}

std::optional<double> OpenDescriptors() {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return std::nullopt;
  double count = -3;  // For ".", ".." and the directory itself.
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

}  // namespace

std::vector<MetricFamily> ProcessMetrics() {
  std::vector<MetricFamily> all;
  const auto gauge = [&](const char* name, const char* help, double value) {
    all.push_back(Value(name, help, MetricType::Gauge, value));
  };
  const std::vector<double> stat = StatFields();
  if (stat.size() > kResidentPages) {
    const double ticks = double(::sysconf(_SC_CLK_TCK));
    all.push_back(Value("process_cpu_seconds_total",
                        "Processor time of this program. Its rate near the number of cores: busy.",
                        MetricType::Counter, (stat[kUserTicks] + stat[kSystemTicks]) / ticks));
    gauge("process_resident_memory_bytes", "Memory in use. Growing for days: a leak.",
          stat[kResidentPages] * double(::sysconf(_SC_PAGESIZE)));
    gauge("process_virtual_memory_bytes", "Virtual addresses in use; most of them take no memory.",
          stat[kVirtualBytes]);
    if (const std::optional<double> boot = BootTime()) {
      gauge("process_start_time_seconds", "When this program was started. Changing: restarts.",
            *boot + stat[kStartTicks] / ticks);
    }
  }
  if (const std::optional<double> open = OpenDescriptors()) {
    gauge("process_open_fds", "Descriptors in use. Near process_max_fds: connections are refused.",
          *open);
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    gauge("process_max_fds", "The most descriptors that this program may use.",
          double(limit.rlim_cur));
  }
  return all;
}

}  // namespace trainyard
