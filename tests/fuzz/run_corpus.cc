// Runs every input of a target's corpus once: what libFuzzer found stays mended, also in builds of
// another compiler.
//
//   fuzz_TARGET             runs tests/fuzz/corpus/TARGET; TRAINYARD_SOURCE says where tests/ is
//   fuzz_TARGET FILE...     runs these

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "tests/fuzz/input.h"

namespace {

std::vector<std::string> CorpusOf(const std::string& program) {
  const char* const source = std::getenv("TRAINYARD_SOURCE");
  const std::string name = std::filesystem::path(program).filename().string();
  const std::string corpus = absl::StrCat(source == nullptr ? "." : source, "/tests/fuzz/corpus/",
                                          absl::StripPrefix(name, "fuzz_"));
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> paths(argv + 1, argv + argc);
  // scripts/mutate.py speaks to all tests as to those of GoogleTest.
  std::erase_if(paths, [](const std::string& path) { return absl::StartsWith(path, "--gtest"); });
  if (paths.empty()) paths = CorpusOf(argv[0]);
  for (const std::string& path : paths) {
    const auto bytes = trainyard::ReadFile(path, 16 << 20);
    if (!bytes.ok()) {
      std::fprintf(stderr, "%s\n", bytes.status().ToString().c_str());
      return 1;
    }
    // Before the run, which may be the process's last.
    std::fprintf(stderr, "%s\n", path.c_str());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size());
  }
  std::printf("%zu inputs\n", paths.size());
  return paths.empty() ? 1 : 0;
}
