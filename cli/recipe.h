// The job specs that come with the program, as files of a directory. The head of each describes it:
//
//   # A small Llama on English text, byte tokens.
//   # Published: https://... , or "ours"

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::cli {

struct Recipe {
  std::string name;  // The file's name without ".yaml": "tiny", "published/nemo20-llama3-8b-fp8-8".
  std::string path;
  std::string description;  // The first comment line.
  std::string published;    // Where the settings come from; "ours": from nobody else.
  std::string text;
};

// Returns the first of these directories that exists: share/trainyard/recipes beside the binaries'
// directory, and recipes/ of the source tree of this build. NOT_FOUND names both.
absl::StatusOr<std::string> FindRecipeDirectory(const std::string& binary_directory);

// Returns the recipe with a name near `name`, which may lack the folder. "" if there is none.
std::string NearestRecipe(const std::vector<Recipe>& recipes, const std::string& name);

// Returns every *.yaml file of a directory and of its folders, each sorted by name.
absl::StatusOr<std::vector<Recipe>> ReadRecipes(const std::string& directory);

}  // namespace trainyard::cli
