// trainyard recipes: lists and prints job specs to start with.

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/recipe.h"
#include "cli/verbs/verbs.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace trainyard::cli {
namespace {

nlohmann::ordered_json Describe(const Recipe& recipe) {
  return {{"name", recipe.name},
          {"description", recipe.description},
          {"published", recipe.published},
          {"path", recipe.path}};
}

absl::Status PrintOne(const std::vector<Recipe>& recipes, const std::string& name, Output& output) {
  for (const Recipe& recipe : recipes) {
    if (recipe.name != name) continue;
    if (output.format() == Format::kTable) {
      output.Text(recipe.text);
      return absl::OkStatus();
    }
    nlohmann::ordered_json json = Describe(recipe);
    json["spec"] = recipe.text;
    output.Line(JsonText(json, output.format() == Format::kJson ? 2 : -1));
    return absl::OkStatus();
  }
  const std::string nearest = NearestRecipe(recipes, name);
  return absl::NotFoundError(absl::StrCat("no recipe '", name, "'",
                                          nearest.empty()
                                              ? "; 'trainyard recipes' lists them"
                                              : absl::StrCat("; did you mean '", nearest, "'?")));
}

std::string FolderOf(const Recipe& recipe) {
  const size_t slash = recipe.name.rfind('/');
  return slash == std::string::npos ? "" : recipe.name.substr(0, slash);
}

// Those directly in a folder; "" is the directory itself.
std::vector<Recipe> InFolder(const std::vector<Recipe>& recipes, const std::string& folder) {
  std::vector<Recipe> within;
  std::copy_if(recipes.begin(), recipes.end(), std::back_inserter(within),
               [&](const Recipe& recipe) { return FolderOf(recipe) == folder; });
  return within;
}

void NoteFolders(const std::vector<Recipe>& recipes, Output& output) {
  std::map<std::string, int> folders;
  for (const Recipe& recipe : recipes) ++folders[FolderOf(recipe)];
  folders.erase("");
  for (const auto& [folder, count] : folders) {
    output.Note(absl::StrCat("'trainyard recipes ", folder, "' lists ", count, " more"));
  }
}

absl::Status RunRecipes(const Context& context) {
  std::string directory = context.arguments.Text("--recipes");
  if (directory.empty()) {
    ASSIGN_OR_RETURN(directory, FindRecipeDirectory(context.surroundings.binary_directory));
  }
  ASSIGN_OR_RETURN(const std::vector<Recipe> recipes, ReadRecipes(directory));
  Output& output = context.output;
  const std::string name = context.arguments.Text("NAME");
  const std::vector<Recipe> listed = InFolder(recipes, name);
  if (!name.empty() && listed.empty()) return PrintOne(recipes, name, output);
  if (output.format() == Format::kJson) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Recipe& recipe : listed) all.push_back(Describe(recipe));
    output.Line(JsonText(all, 2));
  } else if (output.format() == Format::kJsonLines) {
    for (const Recipe& recipe : listed) output.Line(JsonText(Describe(recipe)));
  } else {
    std::vector<std::vector<std::string>> rows;
    for (const Recipe& recipe : listed) {
      rows.push_back({recipe.name, recipe.description, recipe.published});
    }
    output.Table({{"RECIPE"}, {"WHAT"}, {"PUBLISHED"}}, rows);
    if (name.empty()) NoteFolders(recipes, output);
  }
  return absl::OkStatus();
}

}  // namespace

Verb RecipesVerb() {
  return {.name = "recipes",
          .summary = "lists job specs to start with, or prints one",
          .positionals = {{"NAME", "a recipe of the list, or a folder of recipes", false}},
          .options = {TextOption(
              "--recipes", "DIR",
              "directory of the recipes; default: those that came with this program")},
          .offers = kFormats | kQuiet,
          .examples = {"trainyard recipes", "trainyard recipes tiny > spec.yaml",
                       "trainyard recipes published",
                       "trainyard recipes tiny | trainyard submit - --watch"},
          .run = RunRecipes};
}

}  // namespace trainyard::cli
