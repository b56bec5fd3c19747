// adapter_config.json of a directory that PEFT wrote, and a name that its lists are compared with,
// which is the first line.

#include "train/hf/peft_config.h"

#include <cmath>

#include "common/check.h"
#include "tests/fuzz/input.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const std::string name(input.Line());
  const absl::StatusOr<PeftConfig> config = ParsePeftConfig(input.Rest());
  if (!config.ok()) {
    fuzz::CheckRefusal(config.status());
    return 0;
  }
  const LoraNumbers& numbers = config->numbers;
  CHECK(numbers.rank >= 1 && numbers.rank <= 1024) << numbers.rank;
  CHECK(numbers.alpha > 0 && std::isfinite(numbers.scale())) << numbers.alpha;
  CHECK(config->dropout >= 0 && config->dropout < 1) << config->dropout;
  if (config->KnowsTargets()) config->Targets(name);
  config->TargetsParameter(name);
  config->Saves(name);
  // What is written says the same.
  const std::set<std::string> none;
  const auto again = ParsePeftConfig(ToJson({.numbers = numbers,
                                             .targets = none,
                                             .saved = none,
                                             .parameters = none,
                                             .transposed = config->transposed,
                                             .base = config->base}));
  CHECK(again.ok()) << again.status();
  CHECK(again->numbers == numbers && again->transposed == config->transposed);
  return 0;
}

}  // namespace trainyard
