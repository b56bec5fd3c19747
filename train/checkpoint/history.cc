#include "train/checkpoint/history.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"

namespace trainyard {
namespace {

std::string HistoryPath(const std::string& directory, int64_t epoch) {
  return absl::StrCat(EpochPath(directory, epoch), "/", kHistoryName);
}

}  // namespace

absl::Status AppendHistory(const std::string& directory, int64_t epoch, const std::string& lines,
                           Storage& storage) {
  if (lines.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file,
                   storage.OpenAppend(HistoryPath(directory, epoch)));
  // The line break separates the lines from a torn line that a failed append may have left.
  const std::string text = absl::StrCat("\n", lines);
  RETURN_IF_ERROR(file->Append(text.data(), text.size()));
  RETURN_IF_ERROR(file->Sync());
  return storage.SyncDirectory(EpochPath(directory, epoch));
}

void ReadHistory(const std::string& directory, const Lineage& lineage, int64_t after,
                 const std::function<void(int64_t epoch, const std::string& line)>& use) {
  for (auto stretch = lineage.stretches.rbegin(); stretch != lineage.stretches.rend(); ++stretch) {
    const std::string path = HistoryPath(directory, stretch->epoch);
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) continue;  // A pipe would never end.
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
        continue;
      }
      const int64_t step = json["step"].get<int64_t>();
      if (step <= after || step > stretch->last_step) continue;
      after = step;
      use(stretch->epoch, line);
    }
  }
}

}  // namespace trainyard
