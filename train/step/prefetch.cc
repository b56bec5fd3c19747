#include "train/step/prefetch.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "common/check.h"
#include "common/status_macros.h"

namespace trainyard {

InputData RowsOf(const SequencePart& part, int64_t width, InputData sequences) {
  if (part.ranks == 1) return sequences;
  const auto rows_of = [&](const auto& all) -> InputData {
    const int64_t sequence = part.rows * part.ranks * width, size = int64_t(all.size());
    CHECK(size % sequence == 0) << size << " elements of " << sequence;
    std::remove_cvref_t<decltype(all)> rows;
    rows.reserve(all.size() / size_t(part.ranks));
    for (int64_t begin = 0; begin < size; begin += sequence) {
      for (int64_t s = 0; s < part.rows; ++s) {
        const auto row = all.begin() + begin + part.position(s) * width;
        rows.insert(rows.end(), row, row + width);
      }
    }
    return rows;
  };
  return std::visit(rows_of, sequences);
}

absl::StatusOr<StepBatch> ReadStepBatch(const BatchReader& reader, const SequencePart& part,
                                        int64_t position) {
  StepBatch batch(size_t(reader.micro_batches()));
  for (size_t i = 0; i < batch.size(); ++i) {
    ASSIGN_OR_RETURN(batch[i], reader.Read(position, int64_t(i)));
    for (const InputSpec& input : reader.inputs()) {
      if (input.unit != InputSpec::Unit::kToken) continue;
      InputData& data = batch[i].at(input.name);
      data = RowsOf(part, input.shape.elements(), std::move(data));
    }
    std::vector<int32_t> numbers;
    for (int64_t b = 0; b < reader.micro(); ++b) {
      numbers.insert(numbers.end(), size_t(part.rows), int32_t(reader.FirstSample(int64_t(i)) + b));
    }
    batch[i][kSampleNumbers] = std::move(numbers);
    // These rows are legal, and nobody reads their logits.
    batch[i][kLastRows] = std::vector<int32_t>(size_t(LastRowsOf(reader.micro())));
  }
  return batch;
}

Prefetcher::Prefetcher(const BatchReader& reader, const SequencePart& part, int64_t stride)
    : reader_(reader), part_(part), stride_(stride), thread_([this] { Run(); }) {}

Prefetcher::~Prefetcher() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

absl::StatusOr<StepBatch> Prefetcher::Take(int64_t position) {
  MutexLock lock(mutex_);
  if (wanted_ != position && ready_position_ != position) {
    // The guess was wrong: at most one batch was read in vain.
    while (wanted_) changed_.Wait(mutex_);
    wanted_ = position;
    changed_.NotifyAll();
  }
  while (!ready_ || ready_position_ != position) changed_.Wait(mutex_);
  absl::StatusOr<StepBatch> batch = *std::exchange(ready_, std::nullopt);
  ready_position_ = -1;
  wanted_ = position + stride_;
  changed_.NotifyAll();
  return batch;
}

void Prefetcher::Run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!closing_ && !wanted_) changed_.Wait(mutex_);
    if (closing_) return;
    const int64_t position = *wanted_;
    lock.Unlock();
    absl::StatusOr<StepBatch> batch = ReadStepBatch(reader_, part_, position);
    lock.Lock();
    ready_ = std::move(batch);
    ready_position_ = position;
    wanted_.reset();
    changed_.NotifyAll();
  }
}

}  // namespace trainyard
