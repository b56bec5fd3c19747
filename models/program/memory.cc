#include "models/program/memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

Tensor View(std::byte* data, DType dtype, const Shape& shape) {
  Tensor tensor;
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.shape = shape;
  return tensor;
}

}  // namespace

absl::StatusOr<ProgramMemory> ProgramMemory::Allocate(const Program& program,
                                                      const MemoryPlan& plan,
                                                      const Backend& backend) {
  CHECK(plan.placements.size() == program.values.size()) << "the plan is another program's";
  ProgramMemory memory(program, plan);
  const auto allocate = [&](size_t bytes, Buffer& buffer, bool of_host = false) -> absl::Status {
    if (bytes == 0) return absl::OkStatus();
    absl::StatusOr<Buffer> got = of_host ? backend.AllocateOnHost(bytes) : backend.Allocate(bytes);
    if (!got.ok()) {
      return absl::Status(got.status().code(),
                          absl::StrCat(got.status().message(), "; wanted ",
                                       FormatBytes(double(bytes)), " of ", plan.Summary()));
    }
    buffer = *std::move(got);
    return absl::OkStatus();
  };
  for (int i = 0; i < kNumFlatBuffers; ++i) {
    RETURN_IF_ERROR(allocate(plan.flat_bytes[i], memory.flat_[i]));
  }
  RETURN_IF_ERROR(allocate(plan.constant_bytes, memory.constants_));
  RETURN_IF_ERROR(allocate(plan.scratch_bytes, memory.scratch_));
  for (size_t chunk = 0; chunk < plan.slots.size(); ++chunk) {
    std::vector<Buffer>& slots = memory.slots_.emplace_back(size_t(plan.slots[chunk]));
    for (Buffer& slot : slots) RETURN_IF_ERROR(allocate(plan.slot_bytes[chunk], slot));
  }
  RETURN_IF_ERROR(allocate(sizeof(StepState), memory.step_state_));
  // Last: it takes long to lock the pages of a large buffer.
  for (int i = 0; i < kNumFlatBuffers; ++i) {
    RETURN_IF_ERROR(allocate(plan.host_bytes[i], memory.host_[i], /*of_host=*/true));
  }
  return memory;
}

int64_t ProgramMemory::Find(FlatBuffer buffer, const FlatRange& range) const {
  const std::optional<int64_t> at = program_->place(buffer).Find(range);
  CHECK(at) << "flat buffer " << int(buffer) << " does not have range " << range.offset << "+"
            << range.elements;
  return *at;
}

Tensor ProgramMemory::flat(FlatBuffer buffer, const FlatRange& range) const {
  const int64_t at = Find(buffer, range), on_host = program_->host_elements[size_t(buffer)];
  const DType dtype = program_->dtype(buffer);
  const auto element = [&](const Buffer& memory, int64_t index) {
    return View(memory.data() + size_t(index) * SizeOf(dtype), dtype, {range.elements});
  };
  return at < on_host ? element(host_[size_t(buffer)], at)
                      : element(flat_[size_t(buffer)], at - on_host);
}

Tensor ProgramMemory::weight(const FlatRange& range) const {
  const FlatBuffer buffer = program_->weight_buffer(range);
  return flat(buffer, buffer == FlatBuffer::kMaster ? program_->InMaster(range) : range);
}

Tensor ProgramMemory::frozen(FlatBuffer buffer, const FlatRange& bytes, DType dtype) const {
  return View(flat_[size_t(buffer)].data() + Find(buffer, bytes), dtype,
              {bytes.elements / int64_t(SizeOf(dtype))});
}

Tensor ProgramMemory::tensor(Value value, int slot) const {
  const ValueInfo& info = program_->info(value);
  if (info.storage >= 0) {
    const bool gradient = info.kind == ValueKind::kParameterGradient;
    const ParameterStorage& storage = program_->storages[info.storage];
    const FlatRange& range = storage.flat;
    Tensor tensor = storage.frozen ? frozen(program_->frozen_buffer(range), range, *storage.frozen)
                    : gradient     ? flat(program_->gradient_buffer(range), range)
                                   : weight(range);
    tensor.shape = info.shape;
    return tensor;
  }
  const Placement& placement = plan_.placements[value.id];
  const auto in = [&](const Buffer& arena) {
    return View(arena.data() + placement.offset, info.dtype, info.shape);
  };
  switch (placement.arena) {
    case Arena::kConstant:
      return in(constants_);
    case Arena::kSlot:
      return in(slots_[size_t(placement.chunk)][size_t(slot)]);
    case Arena::kScratch:
      return in(scratch_);
    case Arena::kNone:
      break;
  }
  CHECK(false) << info << " has no memory";
  std::abort();
}

}  // namespace trainyard
