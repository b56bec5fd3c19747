// What lies beside the checkpoints of a job and is written by hosts that may be gone: whose the
// directory is, which attempt continues which, and the history of the steps. The first line is the
// lineage file of epoch 2, the second that of epoch 1, the third the owner file; the rest is epoch
// 1's history.

#include "train/checkpoint/lineage.h"

#include <filesystem>
#include <fstream>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "train/checkpoint/claim.h"
#include "train/checkpoint/history.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/save.h"

namespace trainyard {
namespace {

std::string Directory() {
  return std::filesystem::path(fuzz::FileOf("anchor", "")).parent_path().string() + "/job";
}

void WriteText(const std::string& path, absl::string_view text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::trunc) << text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string directory = Directory();
  fuzz::Input input(data, size);
  WriteText(directory + "/epoch-2/lineage.json", input.Line());
  WriteText(directory + "/epoch-1/lineage.json", input.Line());
  WriteText(directory + "/" + kOwnerName, input.Line());
  WriteText(directory + "/epoch-1/steps.jsonl", input.Rest());
  const auto lineage = ReadLineage(directory);
  CHECK(lineage.ok()) << lineage.status().ToString();
  for (size_t i = 1; i < lineage->stretches.size(); ++i) {
    CHECK(lineage->stretches[i].epoch < lineage->stretches[i - 1].epoch);
  }
  StartsAfter(*lineage, 0);
  ReadHistory(directory, *lineage, 0, [&](int64_t epoch, const std::string& line) {
    CHECK(lineage->Holds(epoch, 1) && !line.empty()) << line;
  });
  const absl::Status claim = ClaimDirectory(directory, "j-1", 2, LocalStorage());
  if (!claim.ok()) fuzz::CheckRefusal(claim);
  return 0;
}

}  // namespace trainyard
