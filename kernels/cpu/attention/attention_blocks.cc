#include "kernels/cpu/attention/attention_blocks.h"

namespace trainyard::cpu {

Sight::Sight(const Layout& at, const Documents& documents, const Strip& strip)
    : end(at.part.kv_rows) {
  const AttentionPart& part = at.part;
  const int64_t offset = part.q_position - part.kv_position;
  by_query = part.mask.window > 0 || documents.begins != nullptr || documents.ends != nullptr;
  if (!by_query) {
    if (!part.mask.causal) return;
    diagonal = strip.i + offset;
    end = std::clamp<int64_t>(strip.i + kQueries + offset, 0, part.kv_rows);
    return;
  }
  begin = part.kv_rows, end = 0;
  all_begin = 0, all_end = part.kv_rows;
  std::fill_n(begins, kQueries, 0), std::fill_n(ends, kQueries, 0);
  for (int64_t q = 0; q < strip.count; ++q) {
    const int64_t row = at.q_first + strip.i + q;
    KeyInterval keys =
        KeysSeen(part.mask, part.q_position + strip.i + q, part.kv_position + part.kv_rows);
    if (documents.begins != nullptr)
      keys.begin = std::max<int64_t>(keys.begin, documents.begins[row]);
    if (documents.ends != nullptr) keys.end = std::min<int64_t>(keys.end, documents.ends[row]);
    keys.begin = std::max<int64_t>(keys.begin - part.kv_position, 0);
    keys.end -= part.kv_position;
    all_begin = std::max(all_begin, keys.begin), all_end = std::min(all_end, keys.end);
    if (keys.begin >= keys.end) continue;
    begins[q] = int32_t(keys.begin), ends[q] = int32_t(keys.end);
    begin = std::min(begin, keys.begin), end = std::max(end, keys.end);
  }
  begin = begin / kKeys * kKeys;
}

}  // namespace trainyard::cpu
