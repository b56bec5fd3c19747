// What an imported checkpoint keeps of the Hugging Face directory that it was made from, so that an
// export of it, or of a model trained from it, is as complete:
//
//   CHECKPOINT/hugging_face/config.json, tokenizer.json, ...   as they were
//   CHECKPOINT/hugging_face/import.json                        the tensors' dtypes
//
// import.json is {"version": 1, "dtype": "BF16", "others": {"TENSOR": "F32"}}: the dtype that most
// tensors of the directory have, and the tensors that have another.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/hf/model_directory.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

inline constexpr char kCarriedName[] = "hugging_face";

struct HfDTypes {
  HfDType most = HfDType::kF32;
  std::map<std::string, HfDType> others = {};  // By the tensors' names in the directory.

  HfDType Of(const std::string& tensor) const;
};
HfDTypes MostAndOthers(const std::map<std::string, HfDType>& all);

// Copies the tokenizer's and the generation's files from the directory `from` to `to`, and syncs
// them. Returns their names. Both are optional, so none may be there.
absl::StatusOr<std::vector<std::string>> CarryFiles(const std::string& from, const std::string& to,
                                                    Storage& storage);
// Writes and syncs a file.
absl::Status WriteFile(const std::string& path, absl::string_view text, Storage& storage);

// Writes everything that the checkpoint in `checkpoint` keeps of `directory`. Returns the names of
// the files.
absl::StatusOr<std::vector<std::string>> KeepOrigin(const ModelDirectory& directory,
                                                    const HfDTypes& dtypes,
                                                    const std::string& checkpoint,
                                                    Storage& storage);

// What was kept.
struct HfOrigin {
  std::string path;  // CHECKPOINT/hugging_face.
  nlohmann::json config;
  HfDTypes dtypes;
};
// Returns what the checkpoint keeps, or else what the one keeps from which its job began
// (init_from), and so on. Nullopt: none of them was imported, or it is no longer there.
absl::StatusOr<std::optional<HfOrigin>> FindOrigin(const std::string& checkpoint);

}  // namespace trainyard
