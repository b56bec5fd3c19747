#include "cli/request_id.h"

#include <sys/random.h>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace trainyard::cli {

std::string NewRequestId() {
  unsigned char b[16];
  CHECK(getrandom(b, sizeof(b), 0) == sizeof(b));
  b[6] = (b[6] & 0x0f) | 0x40;
  b[8] = (b[8] & 0x3f) | 0x80;
  std::string uuid;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    absl::StrAppendFormat(&uuid, "%02x", b[i]);
  }
  return uuid;
}

}  // namespace trainyard::cli
