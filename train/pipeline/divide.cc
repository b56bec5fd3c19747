#include "train/pipeline/divide.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace trainyard {

absl::StatusOr<std::vector<BlockRange>> DivideBlocks(int64_t layers, int parts) {
  CHECK(layers >= 0) << layers;
  const int64_t blocks = layers + 2;
  if (parts < 1 || parts > blocks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wanted 1 to ", blocks, " parts (stages x chunks) for ", layers,
        " layers with embedding and head, found ", parts, "; nearest ", parts < 1 ? 1 : blocks));
  }
  std::vector<BlockRange> ranges;
  for (int64_t part = 0, begin = 0; part < parts; ++part) {
    const int64_t end = begin + blocks / parts + (part < blocks % parts);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

}  // namespace trainyard
