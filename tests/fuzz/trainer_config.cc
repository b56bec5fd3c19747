// The file that a worker writes for a trainer, and that people write by hand.

#include "common/check.h"
#include "common/violations.h"
#include "tests/fuzz/input.h"
#include "train/config/validate.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Violations violations;
  const TrainerConfig config = ParseAndValidateTrainer(fuzz::Input(data, size).Rest(), violations);
  if (violations.empty()) {
    CHECK(DataParallel(config.job) >= 1 && AccumulationSteps(config.job) >= 1);
    return 0;
  }
  const absl::Status status = violations.ToStatus();
  fuzz::CheckRefusal(status);
  // All of the list comes back at the other end of a call.
  CHECK(Violations::FromStatus(status).size() == violations.list().size()) << status.ToString();
  return 0;
}

}  // namespace trainyard
