// Model directories that differ from one of tests/golden/hf.

#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/check.h"
#include "models/hf/model_directory.h"
#include "tests/models/hf/files.h"

namespace trainyard::testing {

struct FileTensor {
  HfDType dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// The content of a directory, to be changed and written.
struct DirectoryContent {
  nlohmann::json config;
  std::map<std::string, FileTensor> tensors;

  static DirectoryContent Of(const std::string& path) {
    const auto directory = ModelDirectory::Open(path);
    CHECK(directory.ok()) << directory.status();
    DirectoryContent content{.config = directory->config(), .tensors = {}};
    for (const auto& [name, tensor] : directory->tensors()) {
      std::string bytes(size_t(tensor.info.bytes), '\0');
      CHECK(tensor.Read(0, bytes.data(), bytes.size()).ok());
      content.tensors[name] = {tensor.info.dtype, tensor.info.shape, bytes};
    }
    return content;
  }

  void Write(const std::string& path) const {
    std::filesystem::create_directories(path);
    std::vector<SafetensorsEntry> entries;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({name, tensor.dtype, tensor.shape});
      data += tensor.bytes;
    }
    WriteBytes(path + "/" + kHfWeightsName, SafetensorsHeader(entries) + data);
    WriteBytes(path + "/" + kHfConfigName, config.dump());
  }
};

}  // namespace trainyard::testing
