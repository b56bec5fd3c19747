#include "train/tokenizer/open_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "train/tokenizer/format.h"

namespace trainyard {
namespace {

constexpr uint64_t kMostTokenizerBytes = 256 << 20;

absl::StatusOr<std::string> FileOf(const std::string& path, const Roots& roots) {
  const auto directory = roots.FindDirectory(path);
  if (!directory.ok()) return path;
  for (const TokenizerFormat* const format : TokenizerFormats()) {
    if (format->file == nullptr) continue;
    const std::string file = absl::StrCat(*directory, "/", format->file);
    if (Exists(file)) return file;
  }
  return absl::NotFoundError(absl::StrCat(path, ": wanted ", TokenizerFileNames(),
                                          " in this directory, found none of them"));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizer(const std::filesystem::path& path,
                                                         absl::string_view bytes) {
  const auto formats = TokenizerFormats();
  const auto found = std::find_if(formats.begin(), formats.end() - 1,
                                  [&](const auto* format) { return format->is(path, bytes); });
  return (*found)->read(path, bytes);
}

}  // namespace

absl::StatusOr<OpenedTokenizer> OpenTokenizer(const std::string& path, const Roots& roots) {
  OpenedTokenizer opened;
  ASSIGN_OR_RETURN(opened.path, FileOf(path, roots));
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(opened.path, roots));
  if (file.size() > kMostTokenizerBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        opened.path, ": wanted at most ", kMostTokenizerBytes, " bytes, found ", file.size()));
  }
  std::string bytes(size_t(file.size()), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, bytes.data(), bytes.size()));
  auto tokenizer = ReadTokenizer(opened.path, bytes);
  if (!tokenizer.ok()) {
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat(opened.path, ": ", tokenizer.status().message()));
  }
  opened.tokenizer = *std::move(tokenizer);
  opened.digest = Sha256Of(bytes);
  return opened;
}

absl::Status CheckVocabulary(const OpenedTokenizer& opened, int64_t model_vocab) {
  const int64_t wanted = opened.tokenizer->vocab();
  if (wanted <= model_vocab) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(opened.path, ": wanted a model with a vocabulary of at least ", wanted,
                   ", the tokenizer's, found ", model_vocab, "; nearest ", wanted));
}

}  // namespace trainyard
