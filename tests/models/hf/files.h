// Files that the tests of Hugging Face directories make.

#pragma once

#include <array>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace trainyard::testing {

inline std::string SourceFile(const std::string& name) {
  return std::string(std::getenv("TRAINYARD_SOURCE")) + "/" + name;
}

// An empty directory of the running test.
inline std::string EmptyDirectory(const std::string& name) {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = absl::StrCat(::testing::TempDir(), "/", test->test_suite_name(), ".",
                                        test->name(), "/", name);
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return std::filesystem::canonical(path).string();
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A safetensors file with this header, whatever it says.
inline std::string Safetensors(const std::string& header, const std::string& data) {
  const auto length = std::bit_cast<std::array<char, 8>>(uint64_t{header.size()});
  return std::string(length.begin(), length.end()) + header + data;
}

}  // namespace trainyard::testing
