// A checkpoint's manifest.json, and what one rank tells another of what it wrote. Damage is found
// by the checksum, so the target gives each input the right one: what is left is what somebody may
// have written on purpose.

#include "train/checkpoint/manifest.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/sha256.h"
#include "models/arch/registry.h"
#include "tests/fuzz/input.h"

namespace trainyard {
namespace {

// `rest` is all behind the first line.
std::string Sealed(absl::string_view rest) {
  return absl::StrCat("{\"manifest_sha256\": \"", Sha256Of(rest), "\",\n", rest);
}

void CheckManifest(absl::string_view rest) {
  const auto read = ParseManifest(Sealed(rest));
  if (!read.ok()) return fuzz::CheckRefusal(read.status());
  const std::string printed = ToJson(*read);
  const auto again = ParseManifest(printed);
  CHECK(again.ok()) << again.status().ToString();
  CHECK(ToJson(*again) == printed) << printed;
  CHECK(again->size_bytes() == read->size_bytes());
  for (const StoredTensor& tensor : read->tensors) {
    CHECK(read->Find(tensor.name, tensor.kind) == &tensor) << tensor.name;
  }
  // `trainyard generate` makes the model, if it is one.
  Violations violations;
  Validate(read->state.model, violations, "model");
  if (!violations.empty()) return fuzz::CheckRefusal(violations.ToStatus());
  CHECK(CreateModel(read->state.model) != nullptr);
}

void CheckTensors(absl::string_view text) {
  const auto read = ParseTensors(text);
  if (!read.ok()) return fuzz::CheckRefusal(read.status());
  const std::string printed = TensorsToJson(*read);
  const auto again = ParseTensors(printed);
  CHECK(again.ok() && TensorsToJson(*again) == printed) << printed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  input.Line() == "tensors" ? CheckTensors(input.Rest()) : CheckManifest(input.Rest());
  return 0;
}

}  // namespace trainyard
