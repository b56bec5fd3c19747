// A job spec as a client of the API sends it: any bytes that are a message.

#include "common/check.h"
#include "common/violations.h"
#include "controller/service/convert_job.h"
#include "tests/fuzz/input.h"
#include "train/config/validate.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  v1::JobSpec message;
  if (!message.ParseFromArray(data, int(size))) return 0;
  const auto spec = controller::FromProto(message);
  if (!spec.ok()) {
    fuzz::CheckRefusal(spec.status());
    return 0;
  }
  const auto job = ParseAndValidateJob((*spec)->config);
  CHECK(job.ok()) << job.status().ToString();
  for (const auto& path : (*spec)->facts.paths) CHECK(path.path.find('\0') == std::string::npos);
  // A repeated request compares equal, and a stored job shows the spec that was submitted.
  v1::JobSpec stored;
  CHECK(stored.ParseFromString((*spec)->bytes));
  const auto again = controller::FromProto(stored);
  CHECK(again.ok()) << again.status().ToString();
  CHECK((*again)->bytes == (*spec)->bytes);
  return 0;
}

}  // namespace trainyard
