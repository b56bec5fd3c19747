// The weights of a Hugging Face directory as a model's parameters.

#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/hf/model_directory.h"
#include "models/hf/places.h"

namespace trainyard {

// Where one tensor of the model lies, and in what format.
struct HfWeight {
  HfLayout layout;
  HfDType stored = HfDType::kF32;    // What the directory has; BF16 for MXFP4.
  DType dtype = DType::kF32;         // What Read returns: `stored`, or f32 for F16.
  const HfTensor* tensor = nullptr;  // Null: MXFP4, in the next two.
  const HfTensor* blocks = nullptr;
  const HfTensor* scales = nullptr;
};

// The directory must outlive this object. Immutable, thread-safe.
class HfWeights {
 public:
  // Checks that the directory has every tensor of the model in its shape and in a known format, and
  // no other tensor. INVALID_ARGUMENT: names the tensor. Reads no tensor, except for a comparison:
  // a tied model may have its embedding a second time as lm_head.weight.
  static absl::StatusOr<HfWeights> Find(const ModelDirectory& directory, const ModelConfig& config,
                                        const HfTable& table);

  const std::vector<HfWeight>& all() const { return weights_; }

  // Reads one parameter of the weight into `out`, which has room for its elements in weight.dtype.
  // Takes memory for one slice of the tensor (HfLayout). DATA_LOSS: a file became shorter.
  // INVALID_ARGUMENT: names the tensor and the place of a number that is NaN or infinite.
  static absl::Status Read(const HfWeight& weight, const HfParameter& parameter, void* out);
  // Reads the rows [first, first + rows) of dim 0 alone. Where the tensor has the parameter as it
  // is, no other bytes are read.
  static absl::Status ReadRows(const HfWeight& weight, const HfParameter& parameter, int64_t first,
                               int64_t rows, void* out);

 private:
  std::vector<HfWeight> weights_;
};

}  // namespace trainyard
