#include "train/step/prefetch.h"

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace trainyard {

std::vector<int32_t> RowsOf(const SequencePart& part, std::span<const int32_t> sequences) {
  const size_t sequence = size_t(part.rows * part.ranks);
  CHECK(sequences.size() % sequence == 0) << sequences.size() << " tokens of " << sequence;
  std::vector<int32_t> rows;
  rows.reserve(sequences.size() / size_t(part.ranks));
  for (size_t begin = 0; begin < sequences.size(); begin += sequence) {
    for (int64_t s = 0; s < part.rows; ++s) {
      rows.push_back(sequences[begin + size_t(part.position(s))]);
    }
  }
  return rows;
}

absl::StatusOr<StepBatch> ReadStepBatch(const BatchReader& reader, int64_t micro,
                                        const SequencePart& part, int64_t position) {
  StepBatch batch(size_t(reader.micro_batches()));
  for (size_t i = 0; i < batch.size(); ++i) {
    std::vector<int32_t> tokens(size_t(micro * reader.sequence())), targets(tokens.size());
    RETURN_IF_ERROR(reader.Read(position, int64_t(i), tokens, targets));
    batch[i] = {{"tokens", RowsOf(part, tokens)}, {"targets", RowsOf(part, targets)}};
  }
  return batch;
}

Prefetcher::Prefetcher(const BatchReader& reader, int64_t micro, const SequencePart& part,
                       int64_t stride)
    : reader_(reader), micro_(micro), part_(part), stride_(stride), thread_([this] { Run(); }) {}

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
    absl::StatusOr<StepBatch> batch = ReadStepBatch(reader_, micro_, part_, position);
    lock.Lock();
    ready_ = std::move(batch);
    ready_position_ = position;
    wanted_.reset();
    changed_.NotifyAll();
  }
}

}  // namespace trainyard
