// Samples to train on: sequence + 1 tokens each, so that the inputs are the first `sequence` of
// them and the targets the last. Start at OpenData; batch_reader.h says which samples a rank reads
// when.

#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/config/job_config.h"

namespace trainyard {

// A pure function of the sample's index. Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t num_samples() const = 0;    // Of one epoch; > 0.
  virtual int64_t sample_tokens() const = 0;  // sequence + 1.

  // Writes the tokens of one sample; out.size() == sample_tokens(), 0 <= index < num_samples(),
  // both CHECKed. Every token is within the vocabulary. Errors name the file: DATA_LOSS where it
  // became shorter, OUT_OF_RANGE for a token outside of the vocabulary, with its position.
  virtual absl::Status Read(int64_t index, std::span<int32_t> out) const = 0;
};

struct DataOptions {
  DataConfig source;     // Not monostate.
  int64_t sequence = 0;  // Tokens of a sample's inputs.
  int64_t vocab = 0;     // Token ids are 0 <= id < vocab; at least 256 for text.
  uint64_t seed = 0;     // Of synthetic data.
  Roots roots;           // Where files may lie.
};

// Training and validation never share a token.
struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;  // Null where nothing is held out.
};

// Opens and checks everything that can be checked without reading all tokens. Errors name the file:
// missing, truncated, inconsistent, or too short for one sample in either split.
absl::StatusOr<DataSplits> OpenData(const DataOptions& options);

}  // namespace trainyard
