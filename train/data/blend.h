// Several datasets of tokens, mixed by weight (blend_order.h), each with its documents shuffled
// (shuffled_documents.h). All orders follow from the job's seed and the number of samples consumed.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/data/dataset.h"

namespace trainyard {

inline constexpr size_t kMaxBlendedDatasets = 256;

// A dataset of a blend: either `prefix` or `path` is "".
struct BlendedDataset {
  double weight = 0;
  std::string prefix;  // As in IndexedData.
  std::string path;    // As in TextData.
};

struct BlendData {
  std::vector<BlendedDataset> datasets;
  double validation_fraction = 0;     // Held out from the end of each dataset.
  bool reset_attention_mask = false;  // These two as in IndexedData.
  bool eod_mask_loss = false;

  static const DataSource& Source() { return BlendSource(); }
};

// Opens all datasets. Datasets are numbered in the order of the spec, and the orders of a dataset
// depend on its number. Errors name the file: those of OpenText and OpenIndexed; INVALID_ARGUMENT
// if a part of a dataset is too short for one sample, or if two files hold tokens of different
// types.
absl::StatusOr<DataSplits> OpenBlend(const BlendData& source, const DataOptions& options);

}  // namespace trainyard
