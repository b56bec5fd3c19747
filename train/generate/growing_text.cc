#include "train/generate/growing_text.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "models/model.h"
#include "models/program/input.h"

namespace trainyard {

GrowingText::GrowingText(Executable& executable)
    : executable_(executable),
      cache_(executable.program().cache),
      at_once_(executable.program().sequence) {
  CHECK(cache_ > 0) << "a program without a cache";
  Forget();
}

GrowingText::Place GrowingText::Read(std::span<const int32_t> text) {
  CHECK(!text.empty());
  const int64_t size = int64_t(text.size()), half = std::max<int64_t>(1, cache_ / 2);
  const int64_t begin = size <= cache_ ? 0 : (size - cache_ + half - 1) / half * half;
  const std::span<const int32_t> visible = text.subspan(size_t(begin));
  const size_t same =
      size_t(std::mismatch(visible.begin(), visible.end(), seen_.begin(), seen_.end()).first -
             visible.begin());
  // A row of the cache is written once, so the last token must be a new one.
  if (same < seen_.size() || same == visible.size()) Forget();
  size_t next = 0;
  while (seen_.size() < visible.size()) {
    next = std::min(size_t(at_once_), visible.size() - seen_.size());
    ReadNew(visible.subspan(seen_.size(), next));
  }
  return {next == 1 ? "logits" : kSeveralLogits, int64_t(next) - 1};
}

void GrowingText::Forget() {
  seen_.clear();
  for (const auto& [name, value] : executable_.program().inputs) {
    if (!absl::StartsWith(name, kCache)) continue;
    const std::vector<float> zeros(size_t(executable_.program().info(value).shape.elements()));
    executable_.WriteInput(value, 0, zeros);
  }
}

void GrowingText::ReadNew(std::span<const int32_t> tokens) {
  const int chunk = tokens.size() == 1 ? 1 : 0;
  const size_t rows = chunk == 1 ? 1 : size_t(at_once_);
  // Rows beyond the tokens are not kept. They see what the last token sees.
  std::vector<int32_t> padded(rows), positions(rows), sources(size_t(cache_), -1);
  std::vector<int32_t> ends(rows, int32_t(seen_.size() + tokens.size()));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t position = seen_.size() + i;
    padded[i] = tokens[i];
    positions[i] = int32_t(position);
    ends[i] = int32_t(position) + 1;
    sources[position] = int32_t(i);
  }
  const Program& program = executable_.program();
  for (const auto& [name, value] : program.inputs) {
    if (program.chunk_of(program.info(value).block) != chunk) continue;
    if (name == "tokens") executable_.WriteInput(value, 0, padded);
    if (name == kCachePositions) executable_.WriteInput(value, 0, positions);
    if (name == kCacheSources) executable_.WriteInput(value, 0, sources);
    if (name == kCacheEnds) executable_.WriteInput(value, 0, ends);
    absl::string_view window_text = name;
    if (!absl::ConsumePrefix(&window_text, kCacheBegins)) continue;
    int32_t window = 0;
    CHECK(absl::SimpleAtoi(window_text, &window)) << name;
    std::vector<int32_t> begins(rows);
    for (size_t i = 0; window > 0 && i < rows; ++i) begins[i] = std::max(0, ends[i] - window);
    executable_.WriteInput(value, 0, begins);
  }
  executable_.Run(Action::kForward, {.chunk = chunk});
  seen_.insert(seen_.end(), tokens.begin(), tokens.end());
}

}  // namespace trainyard
