#include "cli/balancing.h"

#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard::cli {
namespace {

std::optional<FieldValue> Find(const ModelConfig& model, const char* name) {
  for (const Field& field : FieldsOf(model)) {
    if (absl::string_view(field.rule.name) == name) return field.value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> Balancing(const ModelConfig& model) {
  if (!FactsOf(model).experts) return std::nullopt;
  std::vector<std::string> means;
  const double loss = std::get<double>(Find(model, "moe.aux_loss").value_or(0.0));
  if (loss > 0) {
    means.push_back(absl::StrCat("a loss (aux_loss ", loss, ", scope ",
                                 TextOf(*Find(model, "moe.aux_loss_scope")), ")"));
  }
  if (Find(model, "moe.expert_bias") == FieldValue(true)) {
    means.push_back(absl::StrCat("a bias (bias_update_rate ",
                                 TextOf(*Find(model, "moe.bias_update_rate")), ")"));
  }
  if (means.empty()) {
    return "the experts' load is not balanced, as config.json asks for no loss; "
           "model.overrides: {moe: {aux_loss: 1e-3}} adds one";
  }
  return absl::StrCat("the experts' load is balanced by ", absl::StrJoin(means, " and "));
}

}  // namespace trainyard::cli
