#include "tests/families/family_case.h"

#include <algorithm>

#include "common/check.h"

namespace trainyard::testing {

const std::vector<FamilyCase>& FamilyCases() {
#define TRAINYARD_FAMILY_CASE(Name) Name##Case(),
  static const std::vector<FamilyCase>* const cases =
      new std::vector<FamilyCase>{TRAINYARD_FOR_EACH_FAMILY(TRAINYARD_FAMILY_CASE)};
#undef TRAINYARD_FAMILY_CASE
  for (const FamilyCase& one : *cases) {
    CHECK(one.tiny != nullptr && one.flops != nullptr && one.parts != nullptr) << one.name;
    CHECK(one.wrong.empty() || *one.wrong_preset != '\0') << one.name;
  }
  return *cases;
}

const FamilyCase& CaseOf(absl::string_view family) {
  for (const FamilyCase& one : FamilyCases()) {
    if (one.name == family) return one;
  }
  CHECK(false) << "no family \"" << family << "\"";
}

DecoderConfig& AsDecoder(ModelConfig& config) {
  const FamilyCase& family = CaseOf(config.family());
  CHECK(family.is_decoder) << family.name << " is no decoder";
  return family.as_decoder != nullptr ? family.as_decoder(config) : config.As<DecoderConfig>();
}

const DecoderConfig* FindDecoder(const ModelConfig& config) {
  return CaseOf(config.family()).is_decoder ? &AsDecoder(config) : nullptr;
}

bool HasField(const ModelConfig& config, absl::string_view name) {
  const std::vector<Field> fields = FieldsOf(config);
  return std::any_of(fields.begin(), fields.end(),
                     [&](const Field& field) { return field.rule.name == name; });
}

}  // namespace trainyard::testing
