#include "train/hf/carried_files.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/json.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"
#include "train/hf/special_tokens.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr char kGenerationConfig[] = "generation_config.json";
// Those of the files below of which one is enough for a tokenizer, and those that may have a
// template of chats.
constexpr const char* kVocabularies[] = {
    "qwen.tiktoken",  "sentencepiece.bpe.model", "spiece.model", "tekken.json", "tiktoken.model",
    "tokenizer.json", "tokenizer.model",         "vocab.json",   "vocab.txt"};
constexpr const char* kTemplates[] = {"chat_template.jinja", "chat_template.json"};
constexpr char kTokenizerConfig[] = "tokenizer_config.json";

// Only names that are known: a directory may have anything else in it, programs too.
constexpr const char* kCarried[] = {"added_tokens.json",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    kGenerationConfig,
                                    "merges.txt",
                                    "qwen.tiktoken",
                                    "sentencepiece.bpe.model",
                                    "special_tokens_map.json",
                                    "spiece.model",
                                    "tekken.json",
                                    "tiktoken.model",
                                    "tokenizer.json",
                                    "tokenizer.model",
                                    kTokenizerConfig,
                                    "vocab.json",
                                    "vocab.txt"};
constexpr uint64_t kMaxCarriedBytes = 256 << 20;
constexpr absl::string_view kTiktoken = ".tiktoken";
constexpr char kImportName[] = "import.json";
constexpr int kVersion = 1;
constexpr int kMostGenerations = 64;  // Of jobs that began with each other's parameters.

std::optional<HfDType> TypeNamed(const Json& json) {
  for (const HfDType dtype : {HfDType::kF64, HfDType::kF32, HfDType::kBF16, HfDType::kF16}) {
    if (json == Name(dtype)) return dtype;
  }
  return std::nullopt;
}

Json ImportJson(const HfModel& model, const HfDTypes& dtypes) {
  Json others = Json::object();
  for (const auto& [tensor, dtype] : dtypes.others) others[tensor] = Name(dtype);
  Json json = {{"version", kVersion}, {"dtype", Name(dtypes.most)}, {"others", others}};
  if (!model.ignored.empty()) json["ignored"] = model.ignored;
  if (model.directory.config_has_bare_words()) json["bare_words"] = true;
  return json;
}

// Fills in what import.json says.
absl::Status ParseImport(const std::string& text, HfOrigin& origin) {
  const auto damaged = [] { return absl::DataLossError("damaged, or of a later version"); };
  const Json json = ParseUniqueJson(text).value_or(Json());
  if (!json.is_object() || json.value("version", Json()) != kVersion) return damaged();
  const Json others = json.value("others", Json());
  origin.bare_words = json.value("bare_words", Json()) == true;
  if (const Json base = json.value("base", Json()); base.is_string()) origin.base = base;
  for (const Json& key : json.value("ignored", Json::array())) {
    if (!key.is_string()) return damaged();
    origin.ignored.push_back(key);
  }
  const std::optional<HfDType> most = TypeNamed(json.value("dtype", Json()));
  if (!most || !others.is_object()) return damaged();
  HfDTypes& dtypes = origin.dtypes = {.most = *most};
  for (const auto& [tensor, name] : others.items()) {
    const std::optional<HfDType> dtype = TypeNamed(name);
    if (!dtype) return damaged();
    dtypes.others[tensor] = *dtype;
  }
  return absl::OkStatus();
}

// Reads those of the files that are in the directory.
absl::Status ReadFiles(const std::string& directory, std::span<const char* const> names,
                       const Roots& roots, KeptFiles& files) {
  for (const char* name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (!Exists(path)) continue;
    ASSIGN_OR_RETURN(files[name], ReadHfFile(path, kMaxCarriedBytes, roots));
  }
  return absl::OkStatus();
}

absl::StatusOr<HfOrigin> ReadOrigin(const std::string& checkpoint) {
  HfOrigin origin{
      .path = KeptPath(checkpoint), .config = {}, .dtypes = {}, .ignored = {}, .files = {}};
  ASSIGN_OR_RETURN(origin.files, FilesKept(checkpoint));
  for (const char* name : {kHfConfigName, kImportName}) {
    if (origin.files.contains(name)) continue;
    return absl::NotFoundError(absl::StrCat(origin.path, "/", name, ": missing"));
  }
  origin.config = ParseUniqueJson(origin.files[kHfConfigName]).value_or(Json());
  if (!origin.config.is_object()) {
    return absl::DataLossError(
        absl::StrCat(origin.path, "/", kHfConfigName, ": wanted a JSON object"));
  }
  const absl::Status parsed = ParseImport(origin.files[kImportName], origin);
  if (!parsed.ok()) {
    return absl::DataLossError(absl::StrCat(origin.path, "/", kImportName, ": ", parsed.message()));
  }
  return origin;
}

// Writes and syncs the files in a new directory.
absl::Status WriteAll(const KeptFiles& files, const std::string& directory, Storage& storage) {
  RETURN_IF_ERROR(storage.MakeDirectory(directory));
  for (const auto& [name, text] : files) {
    RETURN_IF_ERROR(WriteFile(absl::StrCat(directory, "/", name), text, storage));
  }
  return storage.SyncDirectory(directory);
}

// Puts an adapter's or a spec's own files in the place of those that the base has.
void PutInPlace(KeptFiles own, KeptFiles& files) {
  // The base's would be beside them under other names, and a reader might prefer those.
  const auto has = [&](const char* name) { return own.contains(name); };
  const bool vocabulary = std::any_of(std::begin(kVocabularies), std::end(kVocabularies), has) ||
                          std::any_of(own.begin(), own.end(), [](const auto& file) {
                            return absl::EndsWith(file.first, kTiktoken);
                          });
  const bool chat_template = std::any_of(std::begin(kTemplates), std::end(kTemplates), has) ||
                             absl::StrContains(own[kTokenizerConfig], "\"chat_template\"");
  for (const char* name : kCarried) {
    if (vocabulary && name != absl::string_view(kGenerationConfig)) files.erase(name);
  }
  for (const char* name : kTemplates) {
    if (chat_template) files.erase(name);
  }
  for (auto& [name, text] : own) {
    if (!text.empty()) files[name] = std::move(text);
  }
}

// Returns the imported model's files if they have the vocabulary of this tokenizer, and null if
// not.
const KeptFiles* OfSameVocabulary(const std::optional<HfOrigin>& origin,
                                  const KeptFiles& tokenizer) {
  if (!origin) return nullptr;
  const std::string wanted = VocabularySha256(tokenizer);
  const bool same = std::any_of(origin->files.begin(), origin->files.end(),
                                [&](const auto& file) { return Sha256Of(file.second) == wanted; });
  return same ? &origin->files : nullptr;
}

// Goes from a checkpoint to that from which its job began, and so on, until `is_found` says so.
// Nullopt: there is no further one.
template <typename IsFound>
absl::StatusOr<std::optional<std::string>> FindAmongAncestors(const std::string& checkpoint,
                                                              IsFound&& is_found) {
  std::filesystem::path at = checkpoint;
  for (int i = 0; i < kMostGenerations; ++i) {
    if (is_found(at.string())) return at.string();
    ASSIGN_OR_RETURN(const std::optional<InitialisedFrom> from,
                     ReadInitialisedFrom(at.parent_path().parent_path().string(), std::nullopt));
    if (!from) return std::nullopt;
    at = from->path;
  }
  return std::nullopt;
}

}  // namespace

HfDType HfDTypes::Of(const std::string& tensor) const {
  const auto it = others.find(tensor);
  return it == others.end() ? most : it->second;
}

HfDTypes MostAndOthers(const std::map<std::string, HfDType>& all) {
  std::map<HfDType, int64_t> counts;
  for (const auto& [tensor, dtype] : all) ++counts[dtype];
  HfDTypes dtypes;
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  if (!counts.empty()) {
    dtypes.most = std::max_element(counts.begin(), counts.end(), fewer)->first;
  }
  for (const auto& [tensor, dtype] : all) {
    if (dtype != dtypes.most) dtypes.others[tensor] = dtype;
  }
  return dtypes;
}

absl::Status WriteFile(const std::string& path, absl::string_view text, Storage& storage) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage.Create(path));
  RETURN_IF_ERROR(file->Append(text.data(), text.size()));
  return file->Sync();
}

std::string KeptPath(const std::string& checkpoint) {
  return absl::StrCat(checkpoint, "/", kCarriedName);
}

absl::StatusOr<KeptFiles> FilesToKeep(const HfModel& model, const Roots& roots) {
  KeptFiles files;
  RETURN_IF_ERROR(ReadFiles(model.directory.path(), kCarried, roots, files));
  std::map<std::string, HfDType> dtypes;
  for (const HfWeight& weight : model.weights.all()) {
    dtypes[weight.layout.tensor] = weight.stored;
  }
  files[kHfConfigName] = JsonText(model.directory.config(), 2) + "\n";
  files[kImportName] = JsonText(ImportJson(model, MostAndOthers(dtypes)), 1) + "\n";
  return files;
}

absl::Status KeepOfAdapter(const std::string& directory, const std::string& base,
                           KeptFiles& files) {
  KeptFiles own;
  RETURN_IF_ERROR(ReadFiles(directory, kCarried, Roots(), own));
  PutInPlace(std::move(own), files);
  if (base.empty()) return absl::OkStatus();
  Json json = ParseJson(files.at(kImportName));
  json["base"] = base;
  files[kImportName] = JsonText(json, 1) + "\n";
  return absl::OkStatus();
}

absl::StatusOr<KeptFiles> FilesKept(const std::string& checkpoint, const Roots& roots) {
  KeptFiles files;
  const std::string path = KeptPath(checkpoint);
  constexpr const char* kOthers[] = {kHfConfigName, kImportName};
  RETURN_IF_ERROR(ReadFiles(path, kCarried, roots, files));
  RETURN_IF_ERROR(ReadFiles(path, kOthers, roots, files));
  return files;
}

absl::Status WriteKept(const KeptFiles& files, const std::string& checkpoint, Storage& storage) {
  return WriteAll(files, KeptPath(checkpoint), storage);
}

std::vector<std::string> CarriedOf(const KeptFiles& files) {
  std::vector<std::string> names;
  for (const char* name : kCarried) {
    if (files.contains(name)) names.push_back(name);
  }
  return names;
}

absl::Status WriteTokenizer(const KeptFiles& files, const std::string& checkpoint,
                            Storage& storage) {
  return WriteAll(files, absl::StrCat(checkpoint, "/", kTokenizerName), storage);
}

std::string KeptVocabulary(const std::string& checkpoint) {
  return FindVocabulary(absl::StrCat(checkpoint, "/", kTokenizerName));
}

absl::StatusOr<std::optional<std::string>> KeeperOfTokenizer(const std::string& checkpoint) {
  bool imported = false;  // The nearest one counts.
  ASSIGN_OR_RETURN(std::optional<std::string> keeper,
                   FindAmongAncestors(checkpoint, [&](const std::string& at) {
                     if (!KeptVocabulary(at).empty()) return true;
                     imported = Exists(KeptPath(at));
                     return imported;
                   }));
  if (imported) keeper.reset();
  return keeper;
}

absl::StatusOr<std::vector<std::string>> WriteCarried(const std::string& checkpoint,
                                                      const std::optional<HfOrigin>& origin,
                                                      const std::string& directory,
                                                      Storage& storage) {
  KeptFiles files;
  if (origin) {
    for (const std::string& name : CarriedOf(origin->files)) files[name] = origin->files.at(name);
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> keeper, KeeperOfTokenizer(checkpoint));
  if (keeper) {
    ASSIGN_OR_RETURN(KeptFiles own, TokenizerToKeep(KeptVocabulary(*keeper)));
    const auto generation = files.find(kGenerationConfig);
    if (generation != files.end()) {
      generation->second =
          WithSpecialTokens(own, OfSameVocabulary(origin, own), generation->second);
    }
    PutInPlace(std::move(own), files);
  }
  std::vector<std::string> names;
  for (const auto& [name, text] : files) {
    RETURN_IF_ERROR(WriteFile(absl::StrCat(directory, "/", name), text, storage));
    names.push_back(name);
  }
  return names;
}

absl::Status SetTokensOfTokenizer(const std::string& checkpoint,
                                  const std::optional<HfOrigin>& origin, Json& config) {
  ASSIGN_OR_RETURN(const std::optional<std::string> keeper, KeeperOfTokenizer(checkpoint));
  if (!keeper) return absl::OkStatus();
  ASSIGN_OR_RETURN(const KeptFiles own, TokenizerToKeep(KeptVocabulary(*keeper)));
  SetSpecialTokens(own, OfSameVocabulary(origin, own), /*padding=*/false, config);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<HfOrigin>> FindOrigin(const std::string& checkpoint) {
  ASSIGN_OR_RETURN(
      const std::optional<std::string> keeper,
      FindAmongAncestors(checkpoint, [](const std::string& at) { return Exists(KeptPath(at)); }));
  if (!keeper) return std::nullopt;
  ASSIGN_OR_RETURN(HfOrigin origin, ReadOrigin(*keeper));
  return origin;
}

}  // namespace trainyard
