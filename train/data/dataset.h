// Samples to train on, each as the named inputs that a model reads. Start at OpenData;
// batch_reader.h says which samples a rank reads when.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "models/program/input.h"
#include "train/config/job_config.h"

namespace trainyard {

struct SampleId {
  int64_t index = 0;  // In the dataset.
  int64_t epoch = 0;  // How many times the whole dataset was read before.
  bool operator==(const SampleId&) const = default;
};

// A pure function of the sample's id. Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t num_samples() const = 0;  // Of one epoch; > 0.

  // What each sample has. An input by token has `sequence` units in a sample, one by sample one.
  virtual const std::vector<InputSpec>& inputs() const = 0;

  // Appends the sample's units of each of inputs() to the element of `out` in the same place, which
  // must hold the alternative that the input's kind wants. CHECKs 0 <= index < num_samples().
  // Integers are below their input's limit. Errors name the file: DATA_LOSS where the file became
  // shorter, OUT_OF_RANGE for a value that the model cannot take, with its position. After an
  // error the contents of `out` are unspecified.
  virtual absl::Status Read(const SampleId& sample, std::span<InputData> out) const = 0;
};

struct DataOptions {
  DataConfig source;              // Not monostate.
  std::vector<InputSpec> inputs;  // Those of the model, which the source delivers (CheckInputs).
  int64_t sequence = 0;           // Tokens of a sample.
  uint64_t seed = 0;              // Of synthetic data, and of noise.
  Roots roots;                    // Where files may lie.
};

// Training and validation never share a token.
struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;  // Null where nothing is held out.
};

// Opens the data, and checks everything that can be checked without reading all tokens or latents;
// all labels are read. Errors name the file: missing, truncated, inconsistent, or too short for one
// sample in either split.
absl::StatusOr<DataSplits> OpenData(const DataOptions& options);

}  // namespace trainyard
