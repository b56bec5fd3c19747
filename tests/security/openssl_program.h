// The program `openssl` as a second opinion: it reads what our code wrote and writes what our code
// must read.

#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/files.h"
#include "tests/controller/testing/temp_directory.h"

namespace trainyard::testing {

struct Answer {
  int exit_code = -1;
  std::string text;  // Standard output and errors.
};

inline std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  return out << "exit code " << answer.exit_code << "\n" << answer.text;
}

// Runs `openssl` in a directory of its own, where the files of the commands lie.
class OpensslProgram {
 public:
  Answer Run(absl::string_view arguments) const {
    const std::string command =
        absl::StrCat("cd ", directory_.path(), " && openssl ", arguments, " 2>&1 </dev/null");
    std::FILE* const pipe = ::popen(command.c_str(), "re");
    CHECK(pipe != nullptr) << command;
    Answer answer;
    std::array<char, 4096> bytes;
    size_t n = 0;
    while ((n = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0) {
      answer.text.append(bytes.data(), n);
    }
    const int status = ::pclose(pipe);
    answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return answer;
  }
  // The same where a failure is the test's own fault.
  std::string Must(absl::string_view arguments) const {
    Answer answer = Run(arguments);
    CHECK(answer.exit_code == 0) << "openssl " << arguments << ": " << answer;
    return answer.text;
  }
  void Put(absl::string_view name, absl::string_view text) const {
    const absl::Status status = WriteFileAtomic(absl::StrCat(directory_.path(), "/", name), text);
    CHECK(status.ok()) << status;
  }
  std::string Get(absl::string_view name) const {
    const auto text = ReadFile(absl::StrCat(directory_.path(), "/", name));
    CHECK(text.ok()) << text.status();
    return *text;
  }

 private:
  const controller::TempDirectory directory_;
};

}  // namespace trainyard::testing
