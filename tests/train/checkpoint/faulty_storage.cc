#include "tests/train/checkpoint/faulty_storage.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "common/status_macros.h"

namespace trainyard::testing_checkpoint {
namespace {

namespace fs = std::filesystem;

class FaultyFile final : public OutputFile {
 public:
  FaultyFile(FaultyStorage& storage, std::unique_ptr<OutputFile> file, std::string path)
      : storage_(storage), file_(std::move(file)), path_(std::move(path)) {}
  absl::Status Append(const void* data, size_t bytes) override {
    return storage_.Append(*file_, path_, data, bytes);
  }
  absl::Status Sync() override { return storage_.Sync(path_); }

 private:
  FaultyStorage& storage_;
  const std::unique_ptr<OutputFile> file_;
  const std::string path_;
};

std::string Parent(const std::string& path) { return fs::path(path).parent_path().string(); }

}  // namespace

absl::Status FaultyStorage::Step(const std::string& what) {
  const bool now = fault_ != Fault::kNone && ++calls_ == at_;
  const bool dead = hit_ && fault_ != Fault::kError;
  hit_ |= now;
  if (now || dead) return absl::ResourceExhaustedError(absl::StrCat("injected at ", what));
  return absl::OkStatus();
}

void FaultyStorage::Changed(const std::string& path, std::function<void()> undo) {
  unsynced_changes_.push_back({Parent(path), std::move(undo)});
}

absl::StatusOr<std::unique_ptr<OutputFile>> FaultyStorage::Create(const std::string& path) {
  RETURN_IF_ERROR(Step("create " + path));
  ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, LocalStorage().Create(path));
  Changed(path, [path] { fs::remove(path); });
  unsynced_bytes_[path] = 0;
  return std::make_unique<FaultyFile>(*this, std::move(file), path);
}

absl::StatusOr<std::unique_ptr<OutputFile>> FaultyStorage::OpenAppend(const std::string& path) {
  RETURN_IF_ERROR(Step("open " + path));
  const bool existed = fs::exists(path);
  ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, LocalStorage().OpenAppend(path));
  if (!existed) {
    Changed(path, [path] { fs::remove(path); });
    unsynced_bytes_[path] = 0;
  }
  return std::make_unique<FaultyFile>(*this, std::move(file), path);
}

absl::Status FaultyStorage::Append(OutputFile& file, const std::string& path, const void* data,
                                   size_t bytes) {
  const bool before = hit_;
  const absl::Status status = Step("append " + path);
  unsynced_bytes_.try_emplace(path, fs::file_size(path));
  if (!status.ok()) {
    if (!before) (void)file.Append(data, bytes / 2);
    return status;
  }
  return file.Append(data, bytes);
}

absl::Status FaultyStorage::Sync(const std::string& path) {
  RETURN_IF_ERROR(Step("sync " + path));
  unsynced_bytes_.erase(path);
  return absl::OkStatus();
}

absl::Status FaultyStorage::Rename(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(Step("rename " + from));
  std::string old;
  if (fs::exists(to)) {
    old = absl::StrCat(graveyard_, "/", buried_++);
    fs::create_hard_link(to, old);
  }
  RETURN_IF_ERROR(LocalStorage().Rename(from, to));
  Changed(to, [from, to, old] {
    if (fs::exists(to)) fs::rename(to, from);
    if (!old.empty()) fs::rename(old, to);
  });
  // Also the files in a directory, which have other paths now.
  std::map<std::string, uint64_t> unsynced_bytes;
  for (const auto& [path, safe] : unsynced_bytes_) {
    const bool moved = path == from || absl::StartsWith(path, from + "/");
    unsynced_bytes[moved ? to + path.substr(from.size()) : path] = safe;
  }
  unsynced_bytes_ = std::move(unsynced_bytes);
  return absl::OkStatus();
}

absl::Status FaultyStorage::Link(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(Step("link " + from));
  RETURN_IF_ERROR(LocalStorage().Link(from, to));
  Changed(to, [to] { fs::remove(to); });
  return absl::OkStatus();
}

absl::Status FaultyStorage::Remove(const std::string& path) {
  RETURN_IF_ERROR(Step("remove " + path));
  if (!fs::exists(path)) return absl::OkStatus();
  if (fs::is_directory(path)) {
    RETURN_IF_ERROR(LocalStorage().Remove(path));
    Changed(path, [path] { fs::create_directory(path); });
    return absl::OkStatus();
  }
  const std::string old = absl::StrCat(graveyard_, "/", buried_++);
  fs::rename(path, old);
  Changed(path, [path, old] {
    if (fs::exists(Parent(path))) fs::rename(old, path);
  });
  return absl::OkStatus();
}

absl::Status FaultyStorage::MakeDirectory(const std::string& path) {
  RETURN_IF_ERROR(Step("mkdir " + path));
  const bool existed = fs::exists(path);
  RETURN_IF_ERROR(LocalStorage().MakeDirectory(path));
  if (!existed) Changed(path, [path] { fs::remove_all(path); });
  return absl::OkStatus();
}

absl::Status FaultyStorage::SyncDirectory(const std::string& path) {
  RETURN_IF_ERROR(Step("sync " + path));
  std::erase_if(unsynced_changes_, [&](const Change& change) { return change.directory == path; });
  return absl::OkStatus();
}

void FaultyStorage::LosePower() {
  uint64_t choice = 0;
  for (const auto& [path, safe] : unsynced_bytes_) {
    if (!fs::exists(path)) continue;
    const uint64_t size = fs::file_size(path), lost = RandomBits(seed_, 1, choice++);
    if (lost % 3 == 0) continue;
    fs::resize_file(path, safe);
    if (lost % 3 == 2) fs::resize_file(path, size);  // The length arrived, the bytes did not.
  }
  for (auto it = unsynced_changes_.rbegin(); it != unsynced_changes_.rend(); ++it) {
    if (RandomBits(seed_, 2, choice++) % 2 == 0) it->undo();
  }
}

}  // namespace trainyard::testing_checkpoint
