#include "cli/recipe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard::cli {

absl::StatusOr<std::string> FindRecipeDirectory(const std::string& binary_directory) {
  const std::string installed = binary_directory + "/../share/trainyard/recipes";
  const std::string source = binary_directory + "/../../recipes";
  for (const std::string& directory : {installed, source}) {
    if (Exists(directory)) return directory;
  }
  return absl::NotFoundError(absl::StrCat("no recipes in ", installed, " nor in ", source,
                                          "; say where they are with --recipes"));
}

absl::StatusOr<std::vector<Recipe>> ReadRecipes(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  std::vector<Recipe> recipes;
  for (const std::string& name : names) {
    absl::string_view stem = name;
    if (!absl::ConsumeSuffix(&stem, ".yaml")) continue;
    Recipe recipe = {std::string(stem), absl::StrCat(directory, "/", name), "", "ours", ""};
    ASSIGN_OR_RETURN(recipe.text, ReadFile(recipe.path));
    for (absl::string_view line : absl::StrSplit(recipe.text, '\n')) {
      if (!absl::ConsumePrefix(&line, "# ")) break;
      if (absl::ConsumePrefix(&line, "Published: ")) {
        recipe.published = std::string(line);
      } else if (recipe.description.empty()) {
        recipe.description = std::string(line);
      }
    }
    recipes.push_back(std::move(recipe));
  }
  return recipes;
}

}  // namespace trainyard::cli
