// Several datasets of tokens, mixed by weight (blend_order.h), each with its documents shuffled
// (shuffled_documents.h). All orders follow from the job's seed and the number of samples consumed.

#pragma once

#include <cstdint>

#include "train/data/dataset.h"

namespace trainyard {

// Opens all datasets. Datasets are numbered in the order of the spec, and the orders of a dataset
// depend on its number. Errors name the file: those of OpenText and OpenIndexed; INVALID_ARGUMENT
// if a part of a dataset is too short for one sample, or if two files hold tokens of different
// types.
absl::StatusOr<DataSplits> OpenBlend(const BlendData& source, int64_t vocab,
                                     const DataOptions& options);

}  // namespace trainyard
