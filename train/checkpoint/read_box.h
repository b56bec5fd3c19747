// Reads boxes of a checkpoint's data files. What is handed out has been checked.

#pragma once

#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/checkpoint/manifest.h"

namespace trainyard {

// The data files of a checkpoint, each opened once, confined to its directory.
class DataFiles {
 public:
  explicit DataFiles(const std::string& directory) : directory_(directory), roots_({directory}) {}

  absl::StatusOr<const InputFile*> Get(const std::string& name);

 private:
  const std::string directory_;
  const Roots roots_;
  std::map<std::string, InputFile> files_;
};

// "tensor model.norm.weight (parameter)"
std::string Describe(const StoredTensor& tensor);

// Streams all of a box through `use(data, bytes)`, in whole elements, and then compares the bytes
// with the box's SHA-256: DATA_LOSS names file and tensor.
using UseBytes = absl::FunctionRef<void(const char* data, size_t bytes)>;
absl::Status ReadBox(const StoredTensor& tensor, const StoredBox& stored, DataFiles& files,
                     UseBytes use);

// Reads all of a box, and compares the checksums of its pieces, too.
absl::Status VerifyBox(const StoredTensor& tensor, const StoredBox& stored, DataFiles& files);

// Fills `box` of the tensor at `data`, rows contiguous, from all stored boxes that share elements
// with it. Reads those whole that are wanted whole, or have no pieces, and otherwise the pieces
// that hold what is wanted. DATA_LOSS as above.
absl::Status FillBox(const StoredTensor& tensor, const Box& box, char* data, DataFiles& files);

// SHA-256 of the global tensor's bytes in C order. Reads each of its boxes once more than
// VerifyBox, which comes first: what it reads itself is not compared.
absl::StatusOr<std::string> HashTensor(const StoredTensor& tensor, DataFiles& files);

}  // namespace trainyard
