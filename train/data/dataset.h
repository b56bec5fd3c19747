// Samples to train on. A sample consists of the named inputs that a model reads. Start at OpenData.
// batch_reader.h says which samples a rank reads when.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "models/program/input.h"
#include "train/chat/line_encoder.h"
#include "train/data/source.h"

namespace trainyard {

struct SampleId {
  int64_t index = 0;  // Index in the dataset.
  int64_t epoch = 0;  // How many times the whole dataset was read before.
  bool operator==(const SampleId&) const = default;
};

// A dataset returns the same data for the same SampleId, every time. Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t num_samples() const = 0;  // Samples of one epoch; > 0.
  // Whether the samples are to be read in their own order, which is already a random one.
  virtual bool is_shuffled() const { return false; }

  // The inputs of each sample. A sample has `sequence` units of an input by token, and one unit of
  // an input by sample.
  virtual const std::vector<InputSpec>& inputs() const = 0;

  // Whether each target of every sample is counted in the loss.
  virtual bool counts_all_targets() const { return true; }

  // Of data that are pairs of answers: the numbers of the sample's pairs among all of the data's,
  // in the order of their sides. The default CHECK-fails.
  virtual absl::StatusOr<std::vector<int64_t>> PairsOf(int64_t index) const;

  // Appends the sample's units of input i of inputs() to out[i]. out[i] must hold the alternative
  // for the kind of the input. CHECKs 0 <= index < num_samples(). Integers are below the limit of
  // their input; a target may be kNotCounted. Errors name the file: DATA_LOSS if the file changed
  // after it was opened; OUT_OF_RANGE, with the position, for a value that the model cannot take.
  // After an error the contents of `out` are unspecified.
  virtual absl::Status Read(const SampleId& sample, std::span<InputData> out) const = 0;
};

struct DataOptions {
  DataConfig source;              // With a source.
  std::vector<InputSpec> inputs;  // The model's inputs, which the source must have (CheckInputs).
  int64_t sequence = 0;           // Tokens of a sample.
  uint64_t seed = 0;              // Seed of synthetic data, and of noise, times and dropped labels.
  bool pairs = false;  // Whether the data are pairs of answers; of a file of chats alone.
  Roots roots;         // The directories in which files may lie.
  OpenLineEncoding open_lines = {};  // For sources that read lines.
};

// Ids of tokens are below it. CHECKs that the model reads tokens.
int64_t VocabularyOf(const DataOptions& options);

class TokenStream;  // token_stream.h

// Training and validation never share a token.
struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;  // Null if nothing is held out.
  // The first so many samples of `validation` are all that is held out. Behind them, no target is
  // counted. 0: the samples begin again.
  int64_t held_out = 0;
  // What both are cut from, if their tokens lie in files of numbers (token_check.h).
  std::vector<std::shared_ptr<const TokenStream>> streams = {};
  // How texts or lines became tokens (LineEncoding): its digest, and the path and SHA-256 of the
  // tokenizer's file. Empty: nobody knows, or the tokens are bytes.
  std::string encoding = {}, tokenizer = {}, tokenizer_sha256 = {};
  // The share of padding in an epoch of the training data. Absent: the data are not packed.
  std::optional<double> padding = {};
  // Of pairs of answers: the log-probabilities of both answers of each pair by the reference, by
  // the pairs' numbers, of training and validation together. They begin as zeros, and may be
  // written while no sample is read.
  std::shared_ptr<std::vector<double>> reference = {};
  int64_t epoch = 0;  // Of pairs: the first so many samples of `train` have each of its pairs once.
};

// Opens the data, and checks everything that can be checked without reading all tokens or latents.
// All labels are read. Returns an error, which names the file, if a file is missing, truncated,
// inconsistent, or too short for one sample in either split.
absl::StatusOr<DataSplits> OpenData(const DataOptions& options);

}  // namespace trainyard
