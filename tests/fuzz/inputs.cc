// The record of the files that a job reads, which lies beside its checkpoints and is written by
// hosts that may be gone.

#include "train/checkpoint/inputs.h"

#include "common/check.h"
#include "tests/fuzz/input.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = ParseInputs(std::string(reinterpret_cast<const char*>(data), size));
  if (!read.ok()) {
    fuzz::CheckRefusal(read.status());
    return 0;
  }
  const std::string printed = ToJson(*read);
  const auto again = ParseInputs(printed);
  CHECK(again.ok()) << again.status().ToString();
  CHECK(ToJson(*again) == printed) << printed;
  CHECK(CompareInputs(read->files, *again, "itself").ok()) << printed;
  return 0;
}

}  // namespace trainyard
