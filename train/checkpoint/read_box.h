// Reads boxes from the data files of a checkpoint. All returned data have been checked.

#pragma once

#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/checkpoint/manifest.h"

namespace trainyard {

// The data files of a checkpoint. Each file is opened once, and files outside the directory are
// refused.
class DataFiles {
 public:
  explicit DataFiles(const std::string& directory) : directory_(directory), roots_({directory}) {}

  absl::StatusOr<const InputFile*> Get(const std::string& name);

 private:
  const std::string directory_;
  const Roots roots_;
  std::map<std::string, InputFile> files_;
};

// Returns "tensor model.norm.weight (parameter)".
std::string Describe(const StoredTensor& tensor);

// Passes all bytes of a box through `use(data, bytes)`, in whole elements, and then compares them
// with the box's SHA-256. DATA_LOSS: names file and tensor.
using UseBytes = absl::FunctionRef<void(const char* data, size_t bytes)>;
absl::Status ReadBox(const StoredTensor& tensor, const StoredBox& stored, DataFiles& files,
                     UseBytes use);

// Reads all of a box, and compares also the checksums of its pieces.
absl::Status VerifyBox(const StoredTensor& tensor, const StoredBox& stored, DataFiles& files);

// Fills `box` of the tensor at `data`, rows contiguous, from all stored boxes that share elements
// with it. Reads a stored box as a whole if all of it is needed or it has no pieces, and otherwise
// only the pieces that hold needed elements. DATA_LOSS: as above.
absl::Status FillBox(const StoredTensor& tensor, const Box& box, char* data, DataFiles& files);

// Returns the SHA-256 of the global tensor's bytes in C order. Call VerifyBox for the boxes first:
// this function reads each box again and does not compare it with its checksum.
absl::StatusOr<std::string> HashTensor(const StoredTensor& tensor, DataFiles& files);

}  // namespace trainyard
