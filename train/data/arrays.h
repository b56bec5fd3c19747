// Reads latents of images and their labels from two .npy files, and makes samples of a diffusion
// model from them.
//
// Latents are [N, C, H, W] with H = W, and labels are [N]. A token is a patch of p x p places of
// the latent. The patches follow each other row by row. A sample is
//
//   patches  real [C, p, p], by token   the latent with noise
//   target   real [p, p, C], by token   the noise, or the velocity
//   time     integer, by sample         a random number below the model's limit
//   label    integer, by sample         the label in the file, or with probability label_dropout
//                                       the last number below the model's limit: no label
//
// C and p are those of the input `patches` that the model declares. The noise, the time and whether
// the label is dropped depend only on the seed, the place of the sample in the file and the epoch.
// In validation they do not depend on the epoch either, and no label is dropped, so that the losses
// of different steps can be compared.

#pragma once

#include <string>

#include "train/data/dataset.h"

namespace trainyard {

// What a diffusion model predicts from a sample with noise (train/data/diffusion.h).
enum class PredictionType { kEpsilon, kVPrediction };

struct ArraysData {
  std::string latents;  // A .npy file, [N, C, H, W].
  std::string labels;   // A .npy file, [N].
  PredictionType prediction_type = PredictionType::kEpsilon;
  double label_dropout = 0;        // Probability that a training sample has no label, 0 <= x <= 1.
  double validation_fraction = 0;  // Held out from the end, in samples.

  static const DataSource& Source() { return ArraysSource(); }
};

// Opens the two files. The model must declare the four inputs above (CheckInputs). The last
// floor(validation_fraction * N) samples are for validation. OpenArrays reads all labels once, to
// check them. Errors name the file: those of NpyArray::Open; INVALID_ARGUMENT if shapes or types do
// not fit each other, the model or options.sequence, or if a fraction above 0 holds out no sample;
// OUT_OF_RANGE for a label that the model does not have. Reading a sample returns OUT_OF_RANGE if
// the latent is not finite, and DATA_LOSS if a label is no longer legal.
absl::StatusOr<DataSplits> OpenArrays(const ArraysData& source, const DataOptions& options);

}  // namespace trainyard
