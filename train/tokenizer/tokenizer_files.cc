#include "train/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr uint64_t kMostBytes = 256 << 20;
constexpr absl::string_view kTiktoken = ".tiktoken";
// What a tokenizer that a spec names may have beside it.
constexpr const char* kBesideTokenizer[] = {"added_tokens.json", "chat_template.jinja",
                                            "chat_template.json", "special_tokens_map.json",
                                            "tokenizer_config.json"};
// The files of tokenizers in a directory, in the order in which they are looked for
// (train/tokenizer/format.h), and those of SentencePiece.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tekken.json", "tokenizer.model"};
constexpr const char* kPieces[] = {"sentencepiece.bpe.model", "spiece.model", "tokenizer.model"};

template <size_t N>
bool IsOneOf(const char* const (&names)[N], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

absl::StatusOr<std::string> Read(const std::string& path, const Roots& roots) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, roots));
  if (file.size() > kMostBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": wanted at most ", kMostBytes, " bytes, found ", file.size()));
  }
  std::string text(size_t(file.size()), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, text.data(), text.size()));
  return text;
}

// The name under which `transformers` knows a vocabulary.
std::string NameOfVocabulary(const std::string& path, absl::string_view text) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (absl::EndsWith(name, kTiktoken)) return name;
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{")) {
    const bool tekken = absl::StrContains(text.substr(0, 4096), "\"num_vocab_tokens\"");
    return tekken ? "tekken.json" : "tokenizer.json";
  }
  return IsOneOf(kPieces, name) ? name : "tokenizer.model";
}

}  // namespace

absl::StatusOr<KeptFiles> TokenizerToKeep(const std::string& path, const Roots& roots) {
  std::string file = path;
  if (const auto directory = roots.FindDirectory(path); directory.ok()) {
    for (const char* name : kTokenizerFiles) {
      file = absl::StrCat(*directory, "/", name);
      if (Exists(file)) break;
    }
  }
  KeptFiles files;
  ASSIGN_OR_RETURN(std::string vocabulary, Read(file, roots));
  const std::filesystem::path at = file;
  const std::string parent = at.has_parent_path() ? at.parent_path().string() : std::string(".");
  const std::string beside = roots.FindDirectory(parent).value_or(parent);
  for (const char* name : kBesideTokenizer) {
    const std::string other = absl::StrCat(beside, "/", name);
    if (!Exists(other)) continue;
    ASSIGN_OR_RETURN(files[name], Read(other, roots));
  }
  const std::string name = NameOfVocabulary(file, vocabulary);
  files[name] = std::move(vocabulary);
  return files;
}

std::string VocabularySha256(const KeptFiles& files) {
  for (const auto& [name, text] : files) {
    if (!IsOneOf(kBesideTokenizer, name)) return Sha256Of(text);
  }
  return "";
}

std::string FindVocabulary(const std::string& directory) {
  const auto names = ListDirectory(directory);
  // Whatever copied the directory may have left files of its own there.
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const bool tiktoken = absl::EndsWith(name, kTiktoken) && !absl::StartsWith(name, ".");
    if (tiktoken || IsOneOf(kTokenizerFiles, name) || IsOneOf(kPieces, name)) {
      return absl::StrCat(directory, "/", name);
    }
  }
  return "";
}

}  // namespace trainyard
