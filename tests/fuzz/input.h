// What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput, which gives bytes
// that anybody may have made to a reader and CHECKs what must hold for all of them. Start with
// tests/fuzz/CMakeLists.txt, which lists the targets.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// libFuzzer calls this with inputs that it makes; run_corpus.cc with those of a corpus. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace trainyard::fuzz {

// The bytes of one run, taken from the front. At the end there are zeros and empty texts.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  uint8_t Byte();
  absl::string_view Line();  // Up to the next line break, which is taken, too.
  absl::string_view Bytes(size_t size);
  absl::string_view Rest() { return Bytes(left_.size()); }

 private:
  absl::string_view left_;
};

// CHECKs that an error has a message, in UTF-8: a status goes into a message of protobuf, and who
// receives one with other bytes can read nothing of it.
void CheckRefusal(const absl::Status& status);

// Whether all that `printed` and `read` (JSON) both say is the same in both. Null says nothing,
// because it stands for numbers that are not finite. A reader that takes 2^32 for 0 prints another
// number than was read.
bool JsonAgrees(const std::string& printed, const std::string& read);

// Makes a file of these bytes, in a directory of this process; returns its path. A later call with
// the same name replaces the file.
std::string FileOf(absl::string_view name, absl::string_view bytes);

}  // namespace trainyard::fuzz
