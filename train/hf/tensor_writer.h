// Writes the parameters of a checkpoint as tensors of safetensors files.

#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "models/hf/places.h"
#include "models/hf/safetensors.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/storage.h"
#include "train/hf/adapted_rows.h"

namespace trainyard {

// The dtype that holds a checkpoint's numbers exactly.
HfDType HfDTypeOf(DType dtype);

struct ExportTensor {
  HfLayout layout;
  HfDType dtype = HfDType::kF32;

  SafetensorsEntry entry() const { return {layout.tensor, dtype, layout.shape}; }
};

// Not thread-safe.
class TensorWriter {
 public:
  // Both must outlive the writer. `merges`: a weight is written as its low-rank adapter changes it,
  // computed in f64. Otherwise, what training adds to the norms of a weight's rows is written as
  // PEFT has it: added to these norms.
  TensorWriter(const Checkpoint& checkpoint, Storage& storage, bool merges = false);

  Storage& storage() const { return storage_; }

  // Writes and syncs a file. Errors are those of Checkpoint::Load; INVALID_ARGUMENT also names a
  // parameter with a number beyond the range of F16.
  absl::Status WriteFile(const std::string& path, std::span<const ExportTensor> tensors);

 private:
  // Reads the box in the tensor's dtype.
  absl::Status Load(const HfParameter& parameter, const Box& box, HfDType dtype);
  absl::Status LoadValues(const std::string& name, const Box& box, DType dtype,
                          std::vector<char>& values) const;
  absl::Status LoadNumbers(const std::string& name, const Box& box,
                           std::vector<double>& values) const;
  // INVALID_ARGUMENT: the checkpoint's tensor has another shape, or there is none.
  absl::Status CheckShape(const std::string& name, const Shape& wanted) const;
  // The adapter of a weight, whether or not the checkpoint has it.
  AdaptedRows AdapterOfWeight(const HfParameter& weight) const;
  absl::Status Merge(const HfParameter& parameter, const Box& box, DType dtype);
  absl::Status LoadMagnitudes(const HfParameter& offset, const Box& box, DType dtype);
  void Keep(const std::vector<double>& values, DType dtype);
  absl::Status WriteWhole(const ExportTensor& tensor, OutputFile& file);
  absl::Status WriteSlices(const ExportTensor& tensor, OutputFile& file);

  const Checkpoint& checkpoint_;
  Storage& storage_;
  const bool merges_;
  const std::map<std::string, AdaptedRows> of_experts_;  // Empty if nothing is merged.
  std::vector<char> values_, slice_;
};

}  // namespace trainyard
