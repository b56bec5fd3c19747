#include "train/checkpoint/history.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"

namespace trainyard {
namespace {

std::string HistoryPath(const std::string& directory, int64_t epoch) {
  return absl::StrCat(EpochPath(directory, epoch), "/", kHistoryName);
}

// Replaces the file by one with fewer of the oldest lines. A power cut leaves one of the two.
absl::Status Thin(const std::string& directory, int64_t epoch, uint64_t bytes, Storage& storage) {
  constexpr uint64_t kWhole = kMostHistoryBytes / 2, kThinned = kMostHistoryBytes / 4;
  constexpr size_t kPiece = 1 << 20;
  const uint64_t old = bytes - kWhole, stride = (old + kThinned - 1) / kThinned;
  const std::string path = HistoryPath(directory, epoch), temporary = path + ".tmp";
  std::ifstream file(path);
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> thinned, storage.Create(temporary));
    std::string piece;
    uint64_t position = 0, number = 0;
    for (std::string line; std::getline(file, line); position += line.size() + 1) {
      if (position < old && number++ % stride != 0) continue;
      absl::StrAppend(&piece, line, "\n");
      if (piece.size() < kPiece) continue;
      RETURN_IF_ERROR(thinned->Append(piece.data(), piece.size()));
      piece.clear();
    }
    if (!file.eof()) return absl::InternalError(absl::StrCat("cannot read ", path));
    RETURN_IF_ERROR(thinned->Append(piece.data(), piece.size()));
    RETURN_IF_ERROR(thinned->Sync());
  }
  RETURN_IF_ERROR(storage.Rename(temporary, path));
  return storage.SyncDirectory(EpochPath(directory, epoch));
}

// Whether the file's last line has no end: an append that failed has left a part of a line.
bool EndsWithinALine(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // A pipe would never end.
  std::ifstream file(path, std::ios::ate);
  if (file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

}  // namespace

absl::Status AppendHistory(const std::string& directory, int64_t epoch, const std::string& lines,
                           Storage& storage) {
  if (lines.empty()) return absl::OkStatus();
  const std::string path = HistoryPath(directory, epoch);
  const std::string text = absl::StrCat(EndsWithinALine(path) ? "\n" : "", lines);
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, storage.OpenAppend(path));
  RETURN_IF_ERROR(file->Append(text.data(), text.size()));
  RETURN_IF_ERROR(file->Sync());
  RETURN_IF_ERROR(storage.SyncDirectory(EpochPath(directory, epoch)));
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(HistoryPath(directory, epoch), error);
  if (error || bytes <= kMostHistoryBytes) return absl::OkStatus();
  // The lines are safe, whatever becomes of the old ones.
  const absl::Status thinned = Thin(directory, epoch, bytes, storage);
  if (!thinned.ok()) LogWarning("history_not_thinned", {{"error", thinned.message()}});
  return absl::OkStatus();
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
    if (!file.eof()) LogWarning("history_not_read", {{"file", path}, {"after_step", after}});
  }
}

}  // namespace trainyard
