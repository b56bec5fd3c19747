// Proves that every recipe of the tree is described, can be read as a spec, and is found beside the
// binaries.

#include "cli/recipe.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/message_json.h"
#include "cli/spec.h"
#include "common/files.h"
#include "train/config/validate.h"

namespace trainyard::cli {
namespace {

TEST(Recipe, EveryOneHasADescriptionAndASpecThatCanBeRead) {
  const auto recipes = ReadRecipes(std::string(std::getenv("TRAINYARD_SOURCE")) + "/recipes");
  ASSERT_TRUE(recipes.ok()) << recipes.status();
  const auto published = std::count_if(recipes->begin(), recipes->end(), [](const Recipe& recipe) {
    return absl::StartsWith(recipe.name, "published/");
  });
  EXPECT_EQ(published, 91);
  EXPECT_GT(std::ssize(*recipes), published);
  EXPECT_THAT(recipes->front().name, ::testing::Not(::testing::HasSubstr("/")));
  EXPECT_EQ(NearestRecipe(*recipes, "tny"), "tiny");
  EXPECT_EQ(NearestRecipe(*recipes, "nemo20-llama3-8b-fp8-8"), "published/nemo20-llama3-8b-fp8-8");
  for (const Recipe& recipe : *recipes) {
    SCOPED_TRACE(recipe.name);
    EXPECT_NE(recipe.description, "");
    const auto document = SpecDocument::Parse(recipe.path, recipe.text, {});
    ASSERT_TRUE(document.ok()) << document.status();
    const auto spec = document->ToProto();
    ASSERT_TRUE(spec.ok()) << document->Explain(spec.status());
    EXPECT_EQ(spec->name(), recipe.name.substr(recipe.name.rfind('/') + 1));
  }
}

// Whoever tries the service runs these first, and cuts them short.
TEST(Recipe, TheSmallOnesAreValidForEveryNumberOfSteps) {
  for (const char* name : {"tiny", "data-parallel"}) {
    const std::string path =
        absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/recipes/", name, ".yaml");
    const auto document = SpecDocument::Parse(name, ReadFile(path).value(), {"steps=1"});
    ASSERT_TRUE(document.ok()) << document.status();
    EXPECT_TRUE(ParseAndValidateJob(ProtobufJson(document->ToProto().value())).ok())
        << ParseAndValidateJob(ProtobufJson(document->ToProto().value())).status();
  }
}

TEST(Recipe, ThoseInstalledGoBeforeThoseOfTheSourceTree) {
  const std::string top = ::testing::TempDir() + "/recipe_test";
  ASSERT_TRUE(RemoveTree(top).ok());
  EXPECT_EQ(FindRecipeDirectory(top + "/build/bin").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(MakeDirectories(top + "/build/bin").ok());
  ASSERT_TRUE(MakeDirectories(top + "/recipes").ok());
  EXPECT_EQ(FindRecipeDirectory(top + "/build/bin").value(), top + "/build/bin/../../recipes");
  ASSERT_TRUE(MakeDirectories(top + "/build/share/trainyard/recipes").ok());
  EXPECT_EQ(FindRecipeDirectory(top + "/build/bin").value(),
            top + "/build/bin/../share/trainyard/recipes");
}

}  // namespace
}  // namespace trainyard::cli
