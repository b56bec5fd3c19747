// What a checkpoint keeps of the Hugging Face directory that its model was imported from, so that
// an export of it, or of a model trained from it, is as complete:
//
//   CHECKPOINT/hugging_face/config.json, tokenizer.json, ...   as they were
//   CHECKPOINT/hugging_face/import.json                        the tensors' dtypes
//
// import.json is {"version": 1, "dtype": "BF16", "others": {"TENSOR": "F32"}}: the dtype that most
// tensors of the directory have, and the tensors that have another. Where they are so, it also has
// "ignored": ["KEY"], the keys of config.json that the user had ignored; "bare_words": true, since
// config.json was written by Python with numbers that are not finite; and "base": "PATH", the base
// of an imported adapter as PEFT's directory names it.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/roots.h"
#include "models/hf/model.h"
#include "train/checkpoint/storage.h"
#include "train/tokenizer/tokenizer_files.h"

namespace trainyard {

inline constexpr char kCarriedName[] = "hugging_face";

struct HfDTypes {
  HfDType most = HfDType::kF32;
  std::map<std::string, HfDType> others = {};  // By the tensors' names in the directory.

  HfDType Of(const std::string& tensor) const;
};
HfDTypes MostAndOthers(const std::map<std::string, HfDType>& all);

// Writes and syncs a file.
absl::Status WriteFile(const std::string& path, absl::string_view text, Storage& storage);

// CHECKPOINT/hugging_face.
std::string KeptPath(const std::string& checkpoint);
// Returns what a checkpoint of the model has to keep. Errors name a file that cannot be read.
absl::StatusOr<KeptFiles> FilesToKeep(const HfModel& model, const Roots& roots = Roots());
// Adds what a directory of PEFT has besides: its files of the tokenizer and of generation, with
// which the adapter was trained, in place of the base's; and what its adapter's base is called.
absl::Status KeepOfAdapter(const std::string& directory, const std::string& base, KeptFiles& files);
// Returns what a checkpoint keeps. Empty: nothing.
absl::StatusOr<KeptFiles> FilesKept(const std::string& checkpoint, const Roots& roots = Roots());
// Writes and syncs the files in CHECKPOINT/hugging_face.
absl::Status WriteKept(const KeptFiles& files, const std::string& checkpoint, Storage& storage);

// CHECKPOINT/tokenizer: the tokenizer that a spec has named, with which the checkpoint's data were
// read, and what lies beside it for chats. A checkpoint has none if the spec named the imported
// model's, which is among the files above.
inline constexpr char kTokenizerName[] = "tokenizer";

// Writes and syncs the files in CHECKPOINT/tokenizer.
absl::Status WriteTokenizer(const KeptFiles& files, const std::string& checkpoint,
                            Storage& storage);
// Returns the path of the vocabulary in CHECKPOINT/tokenizer; "" if there is none.
std::string KeptVocabulary(const std::string& checkpoint);
// Returns the checkpoint whose CHECKPOINT/tokenizer is that of this checkpoint: itself, or one from
// which its job, or an earlier one, began (init_from). Nullopt: the jobs named none.
absl::StatusOr<std::optional<std::string>> KeeperOfTokenizer(const std::string& checkpoint);

// The names of the tokenizer's and the generation's files. All of them are optional, so there may
// be none.
std::vector<std::string> CarriedOf(const KeptFiles& files);

// What was kept.
struct HfOrigin {
  std::string path;  // CHECKPOINT/hugging_face.
  nlohmann::json config;
  HfDTypes dtypes;
  std::vector<std::string> ignored;
  bool bare_words = false;
  std::string base = {};  // Of an imported adapter. Empty: nobody said.
  KeptFiles files;
};
// Writes and syncs in the directory the tokenizer's and the generation's files of `origin`, the
// checkpoint's. A tokenizer that a spec has named takes the place of the imported one, and
// generation_config.json has the ids of its tokens (special_tokens.h). Returns the files' names.
absl::StatusOr<std::vector<std::string>> WriteCarried(const std::string& checkpoint,
                                                      const std::optional<HfOrigin>& origin,
                                                      const std::string& directory,
                                                      Storage& storage);
// Sets the ids in config.json to those of the tokenizer that a spec has named, if one has
// (special_tokens.h).
absl::Status SetTokensOfTokenizer(const std::string& checkpoint,
                                  const std::optional<HfOrigin>& origin, nlohmann::json& config);
// Returns what the checkpoint keeps, or else what the one keeps from which its job began
// (init_from), and so on. Nullopt: none of them was imported, or it is no longer there.
absl::StatusOr<std::optional<HfOrigin>> FindOrigin(const std::string& checkpoint);

}  // namespace trainyard
