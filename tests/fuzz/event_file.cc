// TensorBoard's events. Input that begins with "file": what stands where an export will write. The
// export refuses the file and leaves it as it is, or ends with a file in which another export
// changes nothing. Any other input: the message of one record.

#include "train/export/event_file.h"

#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/files.h"
#include "tests/fuzz/input.h"

namespace trainyard {
namespace {

absl::Status Export(const std::string& path) {
  auto file = EventFile::Open(path, 1.7e9);
  if (!file.ok()) return file.status();
  CHECK((*file)->Put(PointsEvent(1.7e9, 0, {}, {{"spec", "{}"}})).ok());
  for (int64_t step = 1; step < 3; ++step) {
    CHECK((*file)->Put(PointsEvent(1.7e9, step, {{"loss", 2.5}})).ok());
  }
  return (*file)->Finish(1.7e9);
}

void CheckExport(absl::string_view found) {
  const std::string path = fuzz::FileOf("events", found);
  if (const absl::Status status = Export(path); !status.ok()) {
    fuzz::CheckRefusal(status);
    CHECK(ReadFile(path).value() == found);
    return;
  }
  const std::string written = ReadFile(path).value();
  CHECK(Export(path).ok());
  CHECK(ReadFile(path).value() == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view input(reinterpret_cast<const char*>(data), size);
  if (absl::ConsumePrefix(&input, "file")) {
    CheckExport(input);
  } else {
    (void)ReadEventHead(input);
  }
  return 0;
}

}  // namespace trainyard
