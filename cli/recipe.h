// The job specs to start with, as files of a directory. The head of each says what it is:
//
//   # A small Llama on English text, byte tokens.
//   # Published: https://... , or "ours"

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::cli {

struct Recipe {
  std::string name;  // The file's, without ".yaml".
  std::string path;
  std::string description;  // The first comment line.
  std::string published;    // Where; "ours" if it is not anybody else's.
  std::string text;
};

// The first of these that exists: share/trainyard/recipes beside the binaries' directory, then
// recipes/ of the source tree that it was built in. NOT_FOUND names both.
absl::StatusOr<std::string> FindRecipeDirectory(const std::string& binary_directory);

// Every *.yaml of a directory, by name.
absl::StatusOr<std::vector<Recipe>> ReadRecipes(const std::string& directory);

}  // namespace trainyard::cli
