// A job as the controller's store keeps it. The first line says whether the rest is its facts.

#include "common/check.h"
#include "controller/jobs/job_codec.h"
#include "tests/fuzz/input.h"

namespace trainyard {

using controller::DecodeFacts;
using controller::DecodeJob;

template <typename Decode, typename Encode>
void Check(const std::string& text, Decode decode, Encode encode) {
  const auto read = decode(text);
  if (!read.ok()) {
    CHECK(absl::IsDataLoss(read.status()));
    return fuzz::CheckRefusal(read.status());
  }
  const std::string printed = encode(*read);
  CHECK(fuzz::JsonAgrees(printed, text)) << printed;
  const auto again = decode(printed);
  CHECK(again.ok()) << again.status().ToString();
  CHECK(encode(*again) == printed) << printed;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  if (input.Line() == "facts") {
    Check(std::string(input.Rest()), DecodeFacts, controller::EncodeFacts);
  } else {
    Check(std::string(input.Rest()), DecodeJob, controller::EncodeJob);
  }
  return 0;
}

}  // namespace trainyard
