#include "tests/fuzz/input.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/text.h"

namespace trainyard::fuzz {
namespace {

using Json = nlohmann::json;

// A directory that goes with the process; in memory, because each run of a target may write there.
class Directory {
 public:
  Directory() {
    const bool memory = ::access("/dev/shm", W_OK) == 0;
    std::string pattern = memory ? "/dev/shm/trainyard-fuzz-XXXXXX" : "/tmp/trainyard-fuzz-XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
  }
  ~Directory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool Agree(const Json& printed, const Json& read) {
  if (printed.is_null() || read.is_null()) return true;
  if (printed.is_object() && read.is_object()) {
    return std::all_of(printed.items().begin(), printed.items().end(), [&](const auto& item) {
      const auto other = read.find(item.key());
      return other == read.end() || Agree(item.value(), *other);
    });
  }
  if (printed.is_array() && read.is_array()) {
    return std::equal(printed.begin(), printed.end(), read.begin(), read.end(), Agree);
  }
  return printed == read;
}

}  // namespace

uint8_t Input::Byte() {
  const absl::string_view byte = Bytes(1);
  return byte.empty() ? 0 : uint8_t(byte[0]);
}

absl::string_view Input::Line() {
  const absl::string_view line = Bytes(std::min(left_.find('\n'), left_.size()));
  Bytes(1);
  return line;
}

absl::string_view Input::Bytes(size_t size) {
  const absl::string_view bytes = left_.substr(0, size);
  left_.remove_prefix(bytes.size());
  return bytes;
}

void CheckRefusal(const absl::Status& status) {
  CHECK(!status.ok() && !status.message().empty()) << status.ToString();
  CHECK(ValidUtf8(status.message()) == status.message()) << status.ToString();
}

bool JsonAgrees(const std::string& printed, const std::string& read) {
  return Agree(Json::parse(printed), Json::parse(read));
}

std::string FileOf(absl::string_view name, absl::string_view bytes) {
  static const Directory directory;
  const std::string path = absl::StrCat(directory.path(), "/", name);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), std::streamsize(bytes.size()));
  file.close();
  CHECK(bool(file)) << path;
  return path;
}

}  // namespace trainyard::fuzz
