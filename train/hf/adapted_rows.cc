#include "train/hf/adapted_rows.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "models/program/low_rank.h"

namespace trainyard {

std::map<std::string, AdaptedRows> AdaptedRowsOfExperts(const ModelConfig& model) {
  std::map<std::string, AdaptedRows> rows;
  for (const ParameterStorage& storage : DeclareParameters(*CreateModel(model))) {
    int64_t first = 0;
    for (const ParameterSpec& spec : storage.parameters) {
      if (spec.adapted_as.empty()) continue;
      for (int64_t expert = 0; expert < spec.shape[0]; ++expert) {
        const std::string number = absl::StrCat(expert);
        rows[absl::StrReplaceAll(spec.name, {{"*", number}})] = {
            .layer = absl::StrReplaceAll(AdaptedLayerOf(spec), {{"*", number}}),
            .first = first,
            .outputs = storage.shape[1]};
      }
      first += spec.shape[1];
    }
  }
  return rows;
}

}  // namespace trainyard
