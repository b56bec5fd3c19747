#include "train/data/batch_reader.h"

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/data/permutation.h"

namespace trainyard {

int64_t SampleAt(SampleOrder order, uint64_t seed, int64_t num_samples, int64_t consumed) {
  CHECK(consumed >= 0 && num_samples > 0) << consumed << " of " << num_samples;
  const int64_t epoch = consumed / num_samples, index = consumed % num_samples;
  if (order == SampleOrder::kSequential) return index;
  return Permute(RandomBits(seed, HashName("data/epoch"), uint64_t(epoch)), num_samples, index);
}

BatchReader::BatchReader(const Dataset& dataset, SampleOrder order, uint64_t seed, BatchShape shape)
    : dataset_(dataset), order_(order), seed_(seed), shape_(shape) {
  CHECK(shape.micro > 0 && shape.data_parallel > 0 && shape.global > 0 &&
        shape.global % (shape.micro * shape.data_parallel) == 0)
      << shape.global << " over " << shape.micro << " x " << shape.data_parallel;
  CHECK(shape.data_rank >= 0 && shape.data_rank < shape.data_parallel)
      << shape.data_rank << " of " << shape.data_parallel;
}

int64_t BatchReader::micro_batches() const {
  return shape_.global / (shape_.micro * shape_.data_parallel);
}

absl::Status BatchReader::Read(int64_t position, int64_t micro_batch, std::span<int32_t> tokens,
                               std::span<int32_t> targets) const {
  const size_t length = size_t(sequence());
  CHECK(micro_batch >= 0 && micro_batch < micro_batches())
      << micro_batch << " of " << micro_batches();
  CHECK(tokens.size() == size_t(shape_.micro) * length && targets.size() == tokens.size())
      << tokens.size() << " and " << targets.size();
  const int64_t first =
      position + (micro_batch * shape_.data_parallel + shape_.data_rank) * shape_.micro;
  std::vector<int32_t> sample(length + 1);
  for (int64_t b = 0; b < shape_.micro; ++b) {
    const int64_t index = SampleAt(order_, seed_, dataset_.num_samples(), first + b);
    RETURN_IF_ERROR(dataset_.Read(index, sample));
    std::copy_n(sample.begin(), length, tokens.begin() + b * int64_t(length));
    std::copy_n(sample.begin() + 1, length, targets.begin() + b * int64_t(length));
  }
  return absl::OkStatus();
}

}  // namespace trainyard
