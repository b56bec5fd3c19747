#include "models/program/ops/expert_dispatch.h"

#include <utility>

#include "kernels/experts/expert_order.h"
#include "kernels/experts/gather_rows.h"

namespace trainyard::ops {
namespace {

Tensor Reshaped(Tensor tensor, const Shape& shape) {
  tensor.shape = shape;
  return tensor;
}

Tensor AsColumn(Tensor tensor) { return Reshaped(tensor, {tensor.elements(), 1}); }

}  // namespace

namespace {

// The indices of what is kept. The last two are kept only if the device alone finds the places.
enum KeptIndex { kCounts, kOrder, kPlace, kOffsets };

}  // namespace

std::vector<Recorder::Output> ExpertDispatch::Kept(const ExpertDispatchShape& s) {
  const auto memory = [](const char* name, const Shape& shape) {
    return Recorder::Output::Memory(name, shape, DType::kI32);
  };
  std::vector<Recorder::Output> kept = {memory("counts", {s.ranks, s.experts}),
                                        memory("order", {s.slots()})};
  if (s.is_sorting()) {
    kept.push_back(memory("place", {s.tokens, s.top_k}));
    kept.push_back(memory("offsets", {s.experts + 1}));
  }
  return kept;
}

std::vector<Recorder::Output> ExpertDispatch::Memory(const ExpertDispatchShape& s,
                                                     const Precision& precision) {
  std::vector<Recorder::Output> memory;
  if (s.is_sorting()) return memory;
  const auto add = [&](const char* name, const Shape& shape, DType dtype) {
    memory.push_back(Recorder::Output::Memory(name, shape, dtype));
  };
  add("sent", {s.slots()}, DType::kI32);
  add("num_sent", {1}, DType::kI32);
  add("place", {s.tokens, s.top_k}, DType::kI32);
  add("offsets", {s.local_experts() + 1}, DType::kI32);
  add("received", {1}, DType::kI32);
  if (s.ranks == 1) return memory;
  add("grouped", {s.bound}, DType::kI32);
  add("ungrouped", {s.bound}, DType::kI32);
  add("rows_there", {s.slots(), s.width}, precision.activation);
  add("rows_here", {s.bound, s.width}, precision.activation);
  add("weights_there", {s.slots(), 1}, precision.statistic);
  add("weights_here", {s.bound, 1}, precision.statistic);
  return memory;
}

ExpertDispatch::ExpertDispatch(const Binder& binder, const ExpertDispatchShape& shape,
                               std::span<const Tensor> kept, std::span<const Tensor> memory)
    : shape_(shape),
      backend_(binder.backend()),
      collective_(shape.ranks == 1 ? nullptr : &binder.collective(shape.axes)),
      check_communication_(binder.CheckCommunication()),
      counts_(kept[kCounts]),
      order_(kept[kOrder]) {
  if (shape.is_sorting()) {
    sent_ = order_;
    place_ = kept[kPlace];
    offsets_ = kept[kOffsets];
    received_ = Reshaped(offsets_, {1});
    received_.data = offsets_.as<int32_t>() + shape.experts;
    num_sent_ = received_;
    return;
  }
  rounds_.emplace(ExpertRoundsOptions{.ranks = shape.ranks,
                                      .rank = shape.rank,
                                      .experts = shape.experts,
                                      .slots = shape.slots(),
                                      .bound = shape.bound});
  sent_ = memory[0];
  num_sent_ = memory[1];
  place_ = memory[2];
  offsets_ = memory[3];
  received_ = memory[4];
  if (shape.ranks == 1) return;
  grouped_ = memory[5];
  ungrouped_ = memory[6];
  token_ = {memory[7], memory[8]};
  slot_ = {memory[9], memory[10]};
}

Call ExpertDispatch::Sort(const Binder& binder, Tensor experts) const {
  Tensor mine = Reshaped(counts_, {shape_.experts});
  mine.data = counts_.as<int32_t>() + shape_.rank * shape_.experts;
  Call sort = binder.Kernel(ExpertOrderArgs{.experts = experts,
                                            .counts = mine,
                                            .order = order_,
                                            .place = place_,
                                            .offsets = rounds_ ? Tensor{} : offsets_});
  return [sort = std::move(sort), collective = collective_, mine, all = counts_](Exec& exec) {
    sort(exec);
    if (collective != nullptr) collective->AllGather(mine, all);
  };
}

int64_t ExpertDispatch::Load(const Exec& exec) {
  if (!rounds_) return 1;
  backend_.CopyToHost(exec, rounds_->counts().data(), counts_.data, counts_.bytes());
  backend_.CopyToHost(exec, rounds_->order().data(), order_.data, order_.bytes());
  check_communication_();  // Also other axes: tokens may be left by a failed collective.
  return rounds_->Count();
}

void ExpertDispatch::Begin(const Exec& exec, int64_t round) {
  if (!rounds_) return;
  rounds_->Begin(round);
  const auto copy = [&](const Tensor& to, std::span<const int32_t> from) {
    backend_.CopyToDevice(exec, to.data, from.data(), from.size_bytes());
  };
  const int32_t sent = int32_t(rounds_->sent().size());
  copy(sent_, rounds_->sent());
  copy(num_sent_, {&sent, 1});
  copy(place_, rounds_->place());
  copy(offsets_, rounds_->offsets());
  copy(received_, rounds_->offsets().last(1));
  if (collective_ == nullptr) return;
  copy(grouped_, rounds_->grouped());
  copy(ungrouped_, rounds_->ungrouped());
}

Call ExpertDispatch::ToExperts(const Binder& binder, Row row, Tensor x, Tensor grouped) {
  const int64_t divisor = row == Row::kToken ? shape_.top_k : 1;
  if (row == Row::kSlot) x = AsColumn(x), grouped = AsColumn(grouped);
  if (collective_ == nullptr) {  // Rows that a rank sends to itself are grouped already.
    return binder.Kernel(GatherRowsArgs{.x = x,
                                        .rows = Reshaped(sent_, {shape_.bound}),
                                        .count = num_sent_,
                                        .divisor = divisor,
                                        .y = grouped});
  }
  const Staging& staging = row == Row::kToken ? token_ : slot_;
  Call take = binder.Kernel(GatherRowsArgs{
      .x = x, .rows = sent_, .count = num_sent_, .divisor = divisor, .y = staging.there});
  Call group = binder.Kernel(
      GatherRowsArgs{.x = staging.here, .rows = grouped_, .count = received_, .y = grouped});
  return [this, staging, take = std::move(take), group = std::move(group)](Exec& exec) {
    take(exec);
    collective_->AllToAll(staging.there, rounds_->send_rows(), staging.here,
                          rounds_->receive_rows());
    group(exec);
  };
}

Call ExpertDispatch::FromExperts(const Binder& binder, Row row, Tensor grouped, Tensor y,
                                 Write write) {
  Tensor place = place_;
  if (row == Row::kSlot) {
    y = AsColumn(y), grouped = AsColumn(grouped), place = AsColumn(place);
  }
  if (collective_ == nullptr) {
    return binder.Kernel(GatherSumArgs{.z = grouped, .place = place, .y = y, .write = write});
  }
  const Staging& staging = row == Row::kToken ? token_ : slot_;
  Call ungroup = binder.Kernel(
      GatherRowsArgs{.x = grouped, .rows = ungrouped_, .count = received_, .y = staging.here});
  Call sum =
      binder.Kernel(GatherSumArgs{.z = staging.there, .place = place, .y = y, .write = write});
  return [this, staging, ungroup = std::move(ungroup), sum = std::move(sum)](Exec& exec) {
    ungroup(exec);
    collective_->AllToAll(staging.here, rounds_->receive_rows(), staging.there,
                          rounds_->send_rows());
    sum(exec);
  };
}

}  // namespace trainyard::ops
