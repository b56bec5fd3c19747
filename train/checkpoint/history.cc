#include "train/checkpoint/history.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/json.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/checkpoint/paths.h"

namespace trainyard {
namespace {

std::string HistoryPath(const std::string& directory, int64_t epoch) {
  return absl::StrCat(EpochPath(directory, epoch), "/", kHistoryName);
}

// How often a line's step can be halved; -1: the line is damaged.
int Halvings(absl::string_view line) {
  constexpr absl::string_view kKey = "\"step\":";
  const size_t at = line.find(kKey);
  if (at == line.npos) return -1;
  line.remove_prefix(at + kKey.size());
  uint64_t step = 0;
  if (!absl::SimpleAtoi(line.substr(0, line.find_first_not_of("0123456789")), &step)) return -1;
  return std::min(std::countr_zero(step), 63);
}

// Calls use(line, position) for each line.
absl::Status ForEachLine(const std::string& path,
                         const std::function<absl::Status(const std::string&, uint64_t)>& use) {
  std::ifstream file(path);
  uint64_t position = 0;
  for (std::string line; std::getline(file, line); position += line.size() + 1) {
    RETURN_IF_ERROR(use(line, position));
  }
  return file.eof() ? absl::OkStatus() : absl::InternalError(absl::StrCat("cannot read ", path));
}

// Replaces the file by one with fewer of the oldest lines: those whose step is a multiple of 2^n,
// so that they lie evenly however often this is done. A power cut leaves one of the two files.
absl::Status Thin(const std::string& directory, int64_t epoch, uint64_t bytes, Storage& storage) {
  constexpr uint64_t kWhole = kMostHistoryBytes / 2, kThinned = kMostHistoryBytes / 4;
  constexpr size_t kPiece = 1 << 20;
  const uint64_t old = bytes - kWhole;
  const std::string path = HistoryPath(directory, epoch), temporary = path + ".tmp";
  std::array<uint64_t, 64> by_halvings = {};  // Bytes of the old lines.
  RETURN_IF_ERROR(ForEachLine(path, [&](const std::string& line, uint64_t position) {
    const int halvings = position < old ? Halvings(line) : -1;
    if (halvings >= 0) by_halvings[size_t(halvings)] += line.size() + 1;
    return absl::OkStatus();
  }));
  int least = 64;
  for (uint64_t kept = 0; least > 0 && kept + by_halvings[size_t(least - 1)] <= kThinned;) {
    kept += by_halvings[size_t(--least)];
  }
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> thinned, storage.Create(temporary));
    std::string piece;
    RETURN_IF_ERROR(ForEachLine(path, [&](const std::string& line, uint64_t position) {
      if (position < old && Halvings(line) < least) return absl::OkStatus();
      absl::StrAppend(&piece, line, "\n");
      if (piece.size() < kPiece) return absl::OkStatus();
      const std::string full = std::exchange(piece, "");
      return thinned->Append(full.data(), full.size());
    }));
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
    int64_t damaged = 0;
    std::optional<std::pair<int64_t, std::string>> held;  // Until the next line is known.
    const auto tell = [&] {
      if (!held || held->first <= after || held->first > stretch->last_step) return;
      after = held->first;
      use(stretch->epoch, held->second);
    };
    for (std::string line; std::getline(file, line);) {
      const auto json = ParseJson<nlohmann::json>(line);
      if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
        damaged += !line.empty();
        continue;
      }
      const int64_t step = json["step"].get<int64_t>();
      // An attempt's steps grow. A greater one before this one has a damaged number.
      if (held && held->first > step) {
        ++damaged;
      } else {
        tell();
      }
      held.emplace(step, std::move(line));
    }
    tell();
    if (damaged > 0) {
      LogWarning("history_lines_damaged", {{"file", path}, {"lines_left_out", damaged}});
    }
    if (!file.eof()) LogWarning("history_not_read", {{"file", path}, {"after_step", after}});
  }
}

}  // namespace trainyard
