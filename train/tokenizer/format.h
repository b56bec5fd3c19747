// The formats of tokenizers' files. Each format is a file in this folder and a line of the list
// below, which defines how its files are known and read.

#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/tokenizer/tokenizer.h"

namespace trainyard {

struct TokenizerFormat {
  const char* name;  // For messages: "NAME.tiktoken".
  const char* file;  // Its file in a directory: "tokenizer.json". Null: the file has any name.
  // Whether a file with this path and these bytes is of the format. The first format of the list
  // that says so reads the file.
  bool (*is)(const std::filesystem::path& path, absl::string_view bytes);
  absl::StatusOr<std::unique_ptr<Tokenizer>> (*read)(const std::filesystem::path& path,
                                                     absl::string_view bytes);
};

// Calls X(Name) for each format, in the order in which a directory is searched. The file of its
// name defines NameFormat(). The last format takes what is of no other.
// clang-format off
#define TRAINYARD_FOR_EACH_TOKENIZER_FORMAT(X) \
  X(TokenizerJson) \
  X(Tekken) \
  X(Tiktoken) \
  X(SentencePiece)
// clang-format on

#define TRAINYARD_DECLARE_FORMAT(Name) const TokenizerFormat& Name##Format();
TRAINYARD_FOR_EACH_TOKENIZER_FORMAT(TRAINYARD_DECLARE_FORMAT)
#undef TRAINYARD_DECLARE_FORMAT

std::span<const TokenizerFormat* const> TokenizerFormats();

// "tokenizer.json, tekken.json, NAME.tiktoken or a model of SentencePiece"
std::string TokenizerFormatNames();
// "tokenizer.json, tekken.json or tokenizer.model"
std::string TokenizerFileNames();

// Whether a text begins as an object of JSON.
bool BeginsAsObject(absl::string_view text);

}  // namespace trainyard
