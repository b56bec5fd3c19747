// Where a model's parameters lie in the tensors of a Hugging Face directory, by the rules of the
// family's table (HfTensorRule).

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/tensor.h"
#include "models/arch/registry.h"

namespace trainyard {

// A parameter, as checkpoints have it, and its place.
struct HfParameter {
  std::string name;
  Shape shape;
  std::string tensor;                 // Of the directory.
  std::optional<int64_t> index = {};  // In dim 0 of the tensor; absent: the tensor has no such dim.
  bool transposed = false;
  int64_t parts = 1;  // As in HfTensorRule.
  int64_t part = 0;
  bool mxfp4 = false;
  // For PutRows alone. The elements of the parts alternate, not their rows: the slice's row has
  // element 0 of the row of each part, then element 1 of each.
  bool by_elements = false;
  // For PutRows alone. The parameter has the rows of so many matrices, one matrix after another,
  // which alternate in the slice.
  int64_t matrices = 1;
};

// A tensor of the directory. Each of its slices, the places in dim 0, has the rows of `parts`
// parameters in turn. A tensor without that dim is one slice.
struct HfLayout {
  std::string tensor;
  std::vector<int64_t> shape;  // Of the tensor.
  // All parameters that lie in the tensor: the parts of slice 0, then those of slice 1.
  std::vector<HfParameter> parameters;

  int64_t slices() const { return int64_t(parameters.size()) / parameters.front().parts; }
  int64_t slice_elements() const {
    return parameters.front().shape.elements() * parameters.front().parts;
  }
};

// Lists the tensors of a model's directory, in the order in which the model declares their first
// parameters. CHECKs that the table is sound: each slice has all its parts, of one shape.
std::vector<HfLayout> HfLayoutsOf(const ModelConfig& config, const HfTable& table);

// Copies the parameter's rows out of its slice, or into it. Elements have `element_bytes`.
void TakeRows(const HfParameter& parameter, size_t element_bytes, const void* slice, void* out);
void PutRows(const HfParameter& parameter, size_t element_bytes, const void* values, void* slice);

}  // namespace trainyard
