#include "models/program/optimizer/declared_options.h"

#include "absl/strings/strip.h"
#include "common/declared.h"

namespace trainyard {

std::vector<OptimizerOption> DeclaredOptions(absl::string_view optimizer) {
  std::vector<OptimizerOption> options;
  for (const DeclaredField& field : kDeclaredFields) {
    absl::string_view name = field.path;
    if (!absl::ConsumePrefix(&name, "optimizer.") || !absl::ConsumePrefix(&name, optimizer) ||
        !absl::ConsumePrefix(&name, ".")) {
      continue;
    }
    options.push_back(
        {.name = name.data(), .standard = field.standard.value_or(0), .legal = field.real.value()});
  }
  return options;
}

}  // namespace trainyard
