#include "cli/balancing.h"

#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/arch/registry.h"
#include "models/hf/field_json.h"
#include "models/layers/moe_config.h"

namespace trainyard::cli {
namespace {

// Returns ", the same as KEY NUMBER" for the loss that `transformers` has. The coefficient in
// config.json is of another scale (models/hf/config.cc).
std::string AsInConfigJson(const ModelConfig& model, double loss) {
  const Family& family = *FindFamily(model.family());
  const bool of_all_layers =
      FindValue(model, "moe.aux_loss_scope") == FieldValue(std::string(Name(BalanceScope::kModel)));
  if (!of_all_layers || !family.hf || !family.hf->balance) return "";
  const ExpertFacts experts = *FactsOf(model).experts;
  return absl::StrCat(", the same as ", family.hf->balance->coefficient, " ",
                      loss * double(experts.layers) / double(experts.top_k));
}

}  // namespace

std::optional<std::string> Balancing(const ModelConfig& model) {
  if (!FactsOf(model).experts) return std::nullopt;
  std::vector<std::string> means;
  const double loss = std::get<double>(FindValue(model, "moe.aux_loss").value_or(0.0));
  if (loss > 0) {
    means.push_back(absl::StrCat("a loss (aux_loss ", loss, ", scope ",
                                 TextOf(*FindValue(model, "moe.aux_loss_scope")),
                                 AsInConfigJson(model, loss), ")"));
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
