#include "train/generate/stop_texts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace trainyard {

std::string StopTexts::Add(absl::string_view text) {
  if (stopped_) return "";
  absl::StrAppend(&held_, text);
  size_t first = held_.npos, free = held_.size();
  for (const std::string& stop : stops_) {
    if (stop.empty()) continue;
    first = std::min(first, held_.find(stop));
    // The longest end that `stop` begins with.
    const size_t most = std::min(stop.size() - 1, held_.size());
    for (size_t size = most; size > 0; --size) {
      if (!absl::EndsWith(held_, absl::string_view(stop).substr(0, size))) continue;
      free = std::min(free, held_.size() - size);
      break;
    }
  }
  stopped_ = first != held_.npos;
  std::string ready = held_.substr(0, std::min(first, free));
  held_.erase(0, stopped_ ? held_.npos : ready.size());
  return ready;
}

std::string StopTexts::End() { return std::exchange(held_, ""); }

}  // namespace trainyard
