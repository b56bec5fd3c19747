#include "train/step/agree.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

constexpr size_t kMaxMessageBytes = 1024;

Tensor Int(int64_t& value) { return Tensor{{&value, DType::kI64, Shape{1}}}; }

}  // namespace

std::string BroadcastText(Collective& collective, std::string text, int root) {
  int64_t size = int64_t(text.size());
  collective.Broadcast(Int(size), root);
  // As i32, which every backend carries; rounded up to whole elements.
  std::vector<int32_t> data(size_t(size + 3) / 4);
  text.resize(size_t(size));
  if (size > 0) std::memcpy(data.data(), text.data(), text.size());
  collective.Broadcast(Tensor{{data.data(), DType::kI32, Shape{int64_t(data.size())}}}, root);
  if (size > 0) std::memcpy(text.data(), data.data(), text.size());
  return text;
}

absl::Status AgreeOnStatus(Collective& collective, const absl::Status& mine) {
  if (collective.size() == 1) return mine;
  int64_t lowest = mine.ok() ? 0 : collective.size() - collective.rank();
  collective.AllReduceMax(Int(lowest));
  if (lowest == 0) return absl::OkStatus();
  const int culprit = collective.size() - int(lowest);
  int64_t code = int64_t(mine.code());
  collective.Broadcast(Int(code), culprit);
  const std::string message =
      BroadcastText(collective, std::string(mine.message().substr(0, kMaxMessageBytes)), culprit);
  return absl::Status(absl::StatusCode(code), absl::StrCat("rank ", culprit, ": ", message));
}

}  // namespace trainyard
