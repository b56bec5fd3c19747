#include "worker/trainer/channel_messages.h"

namespace trainyard {
namespace {

std::vector<channel::CollectiveUse> ToMessage(const std::vector<CollectiveUse>& uses) {
  std::vector<channel::CollectiveUse> messages;
  for (const auto& [op, group, counts] : uses) {
    messages.push_back({.op = Name(op),
                        .group = group,
                        .calls = uint64_t(counts.calls),
                        .bytes = uint64_t(counts.bytes),
                        .seconds = counts.seconds});
  }
  return messages;
}

}  // namespace

channel::Step ToMessage(const StepRecord& record, absl::Time now) {
  channel::Step message;
  static_cast<StepNumbers&>(message) = record;
  message.step = uint64_t(record.step);
  message.tokens = uint64_t(record.tokens);
  message.seconds = record.seconds;
  message.phases = record.phases;
  message.peak_flops = record.peak_flops;
  message.skipped = record.skipped;
  message.model_flops = record.model_flops;
  message.memory_bytes = uint64_t(record.memory_bytes);
  message.memory_planned_bytes = uint64_t(record.memory_planned_bytes);
  message.time = absl::ToDoubleSeconds(now - absl::UnixEpoch());
  message.collectives = ToMessage(record.collectives);
  return message;
}

channel::Checkpoint ToMessage(const CheckpointRecord& record) {
  channel::Checkpoint message{.step = uint64_t(record.step),
                              .path = record.path,
                              .size_bytes = uint64_t(record.size_bytes),
                              .seconds = record.seconds,
                              .retained = {}};
  for (const ListedCheckpoint& c : record.retained) {
    message.retained.push_back({uint64_t(c.epoch), uint64_t(c.step)});
  }
  return message;
}

channel::Ready ToMessage(const StartRecord& record) {
  channel::Ready message{.step = uint64_t(record.step), .refused = record.refused};
  for (const EarlierCheckpoint& c : record.loadable) {
    message.loadable.push_back(
        {uint64_t(c.listed.epoch), uint64_t(c.listed.step), c.listed.path, uint64_t(c.size_bytes)});
  }
  for (const AttemptStart& start : record.earlier_starts) {
    message.earlier_starts.push_back({uint64_t(start.epoch), uint64_t(start.step)});
  }
  return message;
}

}  // namespace trainyard
