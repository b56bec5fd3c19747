// Latents of images and their labels, in two .npy files, as samples of a diffusion model.
//
// Latents are [N, C, H, W] with H = W, labels [N]. A token is a patch of p x p places of the
// latent; patches follow each other row by row. A sample is
//
//   patches  real [C * p * p], by token   the latent with noise; in a token (channel, row, column)
//   target   real [p * p * C], by token   the noise, or the velocity; in a token (row, column,
//                                         channel)
//   time     integer, by sample           evenly chosen below the model's limit
//   label    integer, by sample           the file's, or with probability label_dropout the last
//                                         one below the model's limit, which stands for no label
//
// p follows from the width of the model's patches and from C. Noise, time and dropped labels are
// functions of (seed, place of the sample in the file, epoch) alone, and in validation the epoch
// does not count and no label is dropped: losses of different steps compare.

#pragma once

#include "train/data/dataset.h"

namespace trainyard {

// Validation are the last floor(fraction * N) samples. Reads all labels once, to check them. Errors
// name the file: INVALID_ARGUMENT where shapes or types do not fit each other, the model or
// options.sequence, OUT_OF_RANGE for a label that the model does not have. Reading a sample gives
// OUT_OF_RANGE for a latent that is not finite.
absl::StatusOr<DataSplits> OpenArrays(const ArraysData& source, const DataOptions& options);

}  // namespace trainyard
