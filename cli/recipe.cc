#include "cli/recipe.h"

#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "common/violations.h"

namespace trainyard::cli {
namespace {

absl::StatusOr<Recipe> ReadRecipe(const std::string& name, const std::string& path) {
  Recipe recipe = {name, path, "", "ours", ""};
  ASSIGN_OR_RETURN(recipe.text, ReadFile(path));
  for (absl::string_view line : absl::StrSplit(recipe.text, '\n')) {
    if (!absl::ConsumePrefix(&line, "# ")) break;
    if (absl::ConsumePrefix(&line, "Published: ")) {
      recipe.published = std::string(line);
    } else if (recipe.description.empty()) {
      recipe.description = std::string(line);
    }
  }
  return recipe;
}

}  // namespace

absl::StatusOr<std::string> FindRecipeDirectory(const std::string& binary_directory) {
  const std::string installed = binary_directory + "/../share/trainyard/recipes";
  const std::string source = binary_directory + "/../../recipes";
  for (const std::string& directory : {installed, source}) {
    if (Exists(directory)) return directory;
  }
  return absl::NotFoundError(absl::StrCat("no recipes in ", installed, " nor in ", source,
                                          "; say where they are with --recipes"));
}

std::string NearestRecipe(const std::vector<Recipe>& recipes, const std::string& name) {
  std::vector<std::string> names;
  std::map<std::string, std::string> by_file;
  for (const Recipe& recipe : recipes) {
    names.push_back(recipe.name);
    by_file.try_emplace(recipe.name.substr(recipe.name.rfind('/') + 1), recipe.name);
  }
  const auto same = by_file.find(name);
  return same != by_file.end() ? same->second : NearestName(name, names);
}

absl::StatusOr<std::vector<Recipe>> ReadRecipes(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  std::vector<Recipe> recipes, of_folders;
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    absl::string_view stem = name;
    if (absl::ConsumeSuffix(&stem, ".yaml")) {
      ASSIGN_OR_RETURN(Recipe recipe, ReadRecipe(std::string(stem), path));
      recipes.push_back(std::move(recipe));
    } else if (auto within = ReadRecipes(path); within.ok()) {
      for (Recipe& recipe : *within) {
        recipe.name = absl::StrCat(name, "/", recipe.name);
        of_folders.push_back(std::move(recipe));
      }
    }
  }
  recipes.insert(recipes.end(), std::make_move_iterator(of_folders.begin()),
                 std::make_move_iterator(of_folders.end()));
  return recipes;
}

}  // namespace trainyard::cli
