// A safetensors file, and config.json of a model directory.

#include "models/hf/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/json.h"
#include "models/hf/config.h"
#include "tests/fuzz/input.h"

namespace trainyard {
namespace {

constexpr uint64_t kMostBytes = 64;  // Of a tensor, that a run reads.

void CheckFile(absl::string_view bytes) {
  const auto file = SafetensorsFile::Open(fuzz::FileOf("model.safetensors", bytes));
  if (!file.ok()) return fuzz::CheckRefusal(file.status());
  uint64_t total = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    total += tensor.bytes;
    uint64_t expected = SizeOf(tensor.dtype);
    for (const int64_t size : tensor.shape) expected *= uint64_t(size);
    CHECK(tensor.bytes == expected) << tensor.bytes;
    std::vector<char> read(size_t(std::min(tensor.bytes, kMostBytes)));
    CHECK(file->Read(tensor, tensor.bytes - read.size(), read.data(), read.size()).ok());
  }
  CHECK(total < bytes.size()) << total;
}

void CheckConfig(absl::string_view text) {
  const nlohmann::json json = ParsePythonJson(text).value_or(nlohmann::json());
  if (!json.is_object()) return;
  const auto config = ConfigFromHf(json);
  if (!config.ok()) return fuzz::CheckRefusal(config.status());
  const auto written = ConfigToHf(*config, json);
  CHECK(written.ok()) << written.status();
  const auto again = ConfigFromHf(*written);
  CHECK(again.ok() && *again == *config) << written->dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  input.Line() == "config" ? CheckConfig(input.Rest()) : CheckFile(input.Rest());
  return 0;
}

}  // namespace trainyard
