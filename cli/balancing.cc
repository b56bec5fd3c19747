#include "cli/balancing.h"

#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/hf/field_json.h"

namespace trainyard::cli {

std::optional<std::string> Balancing(const ModelConfig& model) {
  if (!FactsOf(model).experts) return std::nullopt;
  std::vector<std::string> means;
  const double loss = std::get<double>(FindValue(model, "moe.aux_loss").value_or(0.0));
  if (loss > 0) {
    means.push_back(absl::StrCat("a loss (aux_loss ", loss, ", scope ",
                                 TextOf(*FindValue(model, "moe.aux_loss_scope")), ")"));
  }
  const bool has_bias = FindValue(model, "moe.expert_bias") == FieldValue(true);
  const double rate = std::get<double>(FindValue(model, "moe.bias_update_rate").value_or(0.0));
  if (has_bias && rate > 0) {
    means.push_back(absl::StrCat("a bias (bias_update_rate ", rate, ")"));
  }
  if (means.empty()) {
    return absl::StrCat(
        "the experts' load is not balanced, as `transformers` does not balance it; ",
        "model.overrides: {moe: {aux_loss: 1e-3}} adds a loss",
        has_bias ? ", and {moe: {bias_update_rate: 1e-3}} moves the bias" : "");
  }
  return absl::StrCat("the experts' load is balanced by ", absl::StrJoin(means, " and "));
}

}  // namespace trainyard::cli
