// A machine's GPUs, for tests: a libnvidia-ml.so.1 that knows what the file says which the
// environment's FAKE_NVML names. It is read at every call, so a test changes GPUs as it goes.
//
//   {"driver": "580.65.06", "cuda": 13000, "gpus": [{"name": ..., "error": 15}, ...],
//    "xids": [{"gpu": 0, "xid": 79}, ...]}
//
// fake_nvml.cc has the fields; "error" is what every call about that GPU returns, and a field that
// lacks is not supported by it. XIDs are appended as they happen. While "stuck" is true, no call
// returns: the library does not start, either.

#pragma once

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "nlohmann/json.hpp"

namespace trainyard {

// Of the library, for LD_LIBRARY_PATH of another process.
inline std::string FakeNvmlDirectory() {
  const char* bin = std::getenv("TRAINYARD_BIN");
  CHECK(bin != nullptr) << "run through ctest, which sets TRAINYARD_BIN";
  return std::string(bin) + "/../tests/fake_nvml";
}
inline std::string FakeNvmlLibrary() { return FakeNvmlDirectory() + "/libnvidia-ml.so.1"; }

inline nlohmann::json FakeH100(int index) {
  return {{"name", "NVIDIA H100 80GB HBM3"},
          {"uuid", absl::StrCat("GPU-", index, "a56a4bc-e184-a047-2620-be19fdf913d5")},
          {"capability", {9, 0}},
          {"memory_total", 85'520'809'984},
          {"memory_reserved", 520'809'984},
          {"memory_used", 1'000'000'000},
          {"utilization", 97},          // Per cent.
          {"power", 612'500},           // Milliwatts.
          {"sm_clock", 1755},           // Megahertz.
          {"temperature", 61},          // Celsius.
          {"clock_event_reasons", 4}};  // Held down by the power limit.
}

inline nlohmann::json FakeMachine(int num_gpus) {
  nlohmann::json machine = {
      {"driver", "580.65.06"}, {"cuda", 13000}, {"gpus", nlohmann::json::array()}};
  for (int i = 0; i < num_gpus; ++i) machine["gpus"].push_back(FakeH100(i));
  return machine;
}

// In this process and those that it starts, from now on.
inline void SetFakeMachine(const std::string& directory, const nlohmann::json& machine) {
  const std::string path = directory + "/fake_nvml.json";
  CHECK(WriteFileAtomic(path, machine.dump()).ok());
  // Threads that read the environment must not see it change.
  const char* set = std::getenv("FAKE_NVML");
  if (set == nullptr || set != path) CHECK(::setenv("FAKE_NVML", path.c_str(), 1) == 0);
}

}  // namespace trainyard
