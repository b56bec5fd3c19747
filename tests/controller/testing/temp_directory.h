// An empty directory that is gone with its object.

#pragma once

#include <cstdlib>
#include <string>

#include "common/check.h"
#include "common/files.h"

namespace trainyard::controller {

class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = "/tmp/trainyard-test-XXXXXX";
    const char* made = ::mkdtemp(pattern.data());
    CHECK(made != nullptr) << pattern;
    path_ = made;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() { (void)RemoveTree(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace trainyard::controller
