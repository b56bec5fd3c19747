#include "train/step/agree.h"

#include <array>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "train/checkpoint/lineage.h"

namespace trainyard {
namespace {

constexpr size_t kMaxMessageBytes = 1024;

Tensor Int(int64_t& value) { return Tensor{{&value, DType::kI64, Shape{1}}}; }

// Texts are sent as i32, which every backend can carry, rounded up to whole elements.
Tensor Ints(std::vector<int32_t>& data) {
  return Tensor{{data.data(), DType::kI32, Shape{int64_t(data.size())}}};
}
std::vector<int32_t> Packed(const std::string& text) {
  std::vector<int32_t> data((text.size() + 3) / 4);
  if (!text.empty()) std::memcpy(data.data(), text.data(), text.size());
  return data;
}

}  // namespace

std::string BroadcastText(Collective& collective, std::string text, int root) {
  int64_t size = int64_t(text.size());
  collective.Broadcast(Int(size), root);
  text.resize(size_t(size));
  std::vector<int32_t> data = Packed(text);
  collective.Broadcast(Ints(data), root);
  if (size > 0) std::memcpy(text.data(), data.data(), text.size());
  return text;
}

std::vector<std::string> GatherText(Collective& collective, const std::string& text, int root) {
  if (collective.rank() != root) {
    int64_t size = int64_t(text.size());
    std::vector<int32_t> data = Packed(text);
    const SendHandle sizes = collective.PostSend(Int(size), root);
    const SendHandle contents = collective.PostSend(Ints(data), root);
    collective.WaitSend(sizes);
    collective.WaitSend(contents);
    return {};
  }
  std::vector<std::string> texts(size_t(collective.size()));
  texts[size_t(root)] = text;
  for (int peer = 0; peer < collective.size(); ++peer) {
    if (peer == root) continue;
    int64_t size = 0;
    collective.Receive(Int(size), peer);
    std::vector<int32_t> data(size_t(size + 3) / 4);
    collective.Receive(Ints(data), peer);
    texts[size_t(peer)].assign(reinterpret_cast<const char*>(data.data()), size_t(size));
  }
  return texts;
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
  if (culprit == collective.rank()) return mine;
  const absl::Status status(absl::StatusCode(code), absl::StrCat("rank ", culprit, ": ", message));
  // This rank's host may have what the failed host lacks. For this rank, a peer was lost.
  return IsStorageFault(status) ? absl::UnavailableError(status.message()) : status;
}

std::optional<double> SumWhereAllKnow(Collective& collective, std::optional<double> mine) {
  std::array<double, 2> sums = {mine ? 0.0 : 1.0, mine.value_or(0)};
  collective.AllReduceSum(Tensor{{sums.data(), DType::kF64, Shape{int64_t(sums.size())}}});
  return sums[0] == 0 ? std::optional<double>(sums[1]) : std::nullopt;
}

}  // namespace trainyard
