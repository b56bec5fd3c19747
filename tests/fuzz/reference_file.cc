// The file of what DPO's reference says of the data. The first byte says whether the rest follows a
// header of this job's data (1), with the right SHA-256 (2), so that all checks are reached.

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/sha256.h"
#include "tests/fuzz/input.h"
#include "train/trainer/reference.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const uint8_t flags = input.Byte();
  const std::string rest(input.Rest()), digest(64, 'a');
  std::string bytes = rest;
  if ((flags & 1) != 0) {
    bytes = absl::StrCat("TYREFLP1", digest, (flags & 2) != 0 ? Sha256Of(rest) : "", rest);
  }
  const std::vector<double> before = {1, 2, 3, 4};
  std::vector<double> numbers = before;
  const absl::Status status = ReadReference(bytes, digest, numbers);
  CHECK(numbers.size() == before.size()) << numbers.size();
  if (!status.ok()) {
    fuzz::CheckRefusal(status);
    CHECK(numbers == before) << "changed by a file that is refused";
    return 0;
  }
  // Only the whole file of four numbers is one.
  const size_t contents = numbers.size() * sizeof(double);
  CHECK(bytes.size() == 8 + 64 + 64 + contents) << bytes.size();
  CHECK(bytes.substr(72, 64) == Sha256Of(bytes.substr(136)));
  CHECK(std::memcmp(numbers.data(), bytes.data() + 136, contents) == 0);
  return 0;
}

}  // namespace trainyard
