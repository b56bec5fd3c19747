// A job spec as a person writes it: the command line's reader, then the controller's check. The
// first line is a `--set`, where it is not empty.

#include "cli/spec.h"
#include "common/check.h"
#include "common/violations.h"
#include "controller/service/convert_job.h"
#include "tests/fuzz/input.h"
#include "train/config/validate.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const std::string set(input.Line());
  std::vector<std::string> sets;
  if (!set.empty()) sets.push_back(set);
  const auto document = cli::SpecDocument::Parse("spec.yaml", input.Rest(), sets);
  if (!document.ok()) {
    fuzz::CheckRefusal(document.status());
    return 0;
  }
  const auto message = document->ToProto();
  if (!message.ok()) {
    fuzz::CheckRefusal(document->Explain(message.status()));
    return 0;
  }
  // What the command line sends, the controller can read.
  v1::JobSpec received;
  CHECK(received.ParseFromString(message->SerializeAsString())) << message->DebugString();
  const auto spec = controller::FromProto(received);
  if (!spec.ok()) {
    fuzz::CheckRefusal(document->Explain(spec.status()));
    CHECK(!Violations::FromStatus(spec.status()).empty()) << spec.status().ToString();
    return 0;
  }
  // What the controller accepts, the trainer reads.
  const auto job = ParseAndValidateJob((*spec)->config);
  CHECK(job.ok()) << job.status().ToString();
  for (const auto& path : (*spec)->facts.paths) CHECK(path.path.find('\0') == std::string::npos);
  return 0;
}

}  // namespace trainyard
