// The controller's file of namespaces.

#include "controller/access/namespaces.h"

#include "common/check.h"
#include "tests/fuzz/input.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = controller::ParseNamespaces(std::string(fuzz::Input(data, size).Rest()));
  if (!read.ok()) {
    fuzz::CheckRefusal(read.status());
    return 0;
  }
  for (const auto& [name, limits] : *read) {
    for (const std::string& root : limits.roots) {
      CHECK(root[0] == '/' && root.find('\0') == std::string::npos) << root;
    }
  }
  return 0;
}

}  // namespace trainyard
