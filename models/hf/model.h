// A Hugging Face directory as a model of this program: its configuration, and where its parameters
// lie. Start here to read one.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/roots.h"
#include "models/arch/config.h"
#include "models/hf/model_directory.h"
#include "models/hf/weights.h"

namespace trainyard {

// Immutable, thread-safe.
struct HfModel {
  // Reads config.json and the headers of the shards, and finds each parameter. Errors are those of
  // ModelDirectory::Open and HfWeights::Find, and INVALID_ARGUMENT, which names config.json and all
  // of its keys that are not supported. `ignored`: as of ConfigFromHf.
  static absl::StatusOr<HfModel> Open(const std::string& path, const Roots& roots = Roots(),
                                      const std::vector<std::string>& ignored = {});

  ModelDirectory directory;
  ModelConfig config;
  HfWeights weights;  // Points into `directory`.
  std::vector<std::string> ignored;
};

// Reads config.json alone. Errors are as above.
absl::StatusOr<ModelConfig> ReadHfConfig(const std::string& path,
                                         const std::vector<std::string>& ignored = {});

}  // namespace trainyard
