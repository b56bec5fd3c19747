#include "train/data/batch_reader.h"

#include <utility>
#include <vector>

#include "common/check.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/data/permutation.h"

namespace trainyard {

SampleId SampleAt(SampleOrder order, uint64_t seed, int64_t num_samples, int64_t consumed) {
  CHECK(consumed >= 0 && num_samples > 0) << consumed << " of " << num_samples;
  const int64_t epoch = consumed / num_samples, index = consumed % num_samples;
  if (order == SampleOrder::kSequential) return {index, epoch};
  const uint64_t key = RandomBits(seed, HashName("data/epoch"), uint64_t(epoch));
  return {Permute(key, num_samples, index), epoch};
}

BatchReader::BatchReader(const Dataset& dataset, SampleOrder order, uint64_t seed, BatchShape shape)
    : dataset_(dataset),
      order_(dataset.is_shuffled() ? SampleOrder::kSequential : order),
      seed_(seed),
      shape_(shape) {
  CHECK(shape.micro > 0 && shape.data_parallel > 0 && shape.global > 0 &&
        shape.global % (shape.micro * shape.data_parallel) == 0)
      << shape.global << " over " << shape.micro << " x " << shape.data_parallel;
  CHECK(shape.data_rank >= 0 && shape.data_rank < shape.data_parallel)
      << shape.data_rank << " of " << shape.data_parallel;
}

int64_t BatchReader::FirstSample(int64_t micro_batch) const {
  return (micro_batch * shape_.data_parallel + shape_.data_rank) * shape_.micro;
}

int64_t BatchReader::micro_batches() const {
  return shape_.global / (shape_.micro * shape_.data_parallel);
}

absl::StatusOr<MicroBatchData> BatchReader::Read(int64_t position, int64_t micro_batch) const {
  CHECK(micro_batch >= 0 && micro_batch < micro_batches())
      << micro_batch << " of " << micro_batches();
  const int64_t first = position + FirstSample(micro_batch);
  std::vector<InputData> inputs;
  for (const InputSpec& input : dataset_.inputs()) {
    switch (input.kind) {
      case InputSpec::Kind::kInteger:
        inputs.emplace_back(std::vector<int32_t>());
        break;
      case InputSpec::Kind::kReal:
        inputs.emplace_back(std::vector<float>());
        break;
      case InputSpec::Kind::kExact:
        inputs.emplace_back(std::vector<double>());
    }
  }
  for (int64_t b = 0; b < shape_.micro; ++b) {
    const SampleId sample = SampleAt(order_, seed_, dataset_.num_samples(), first + b);
    RETURN_IF_ERROR(dataset_.Read(sample, inputs));
  }
  MicroBatchData data;
  for (size_t i = 0; i < inputs.size(); ++i) {
    data[dataset_.inputs()[i].name] = std::move(inputs[i]);
  }
  return data;
}

}  // namespace trainyard
