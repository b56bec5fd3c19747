// A directory that PEFT wrote, as parameters of a model of this program: adapter_config.json and
// adapter_model.safetensors, beside the base that they belong to.

#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/hf/model.h"
#include "models/hf/safetensors.h"
#include "train/hf/peft_config.h"
#include "train/hf/peft_names.h"

namespace trainyard {

// Whether the directory has an adapter of PEFT, and no model.
bool IsPeftDirectory(const std::string& path);

// Reads adapter_config.json. Errors name the file: NOT_FOUND, and those of ParsePeftConfig.
absl::StatusOr<PeftConfig> ReadPeftConfig(const std::string& directory);

// A tensor of the file, with what it has of the model.
struct PeftWeight {
  HfLayout layout;
  DType dtype = DType::kF32;  // Of the values that ForEachParameter gives: f32 for F16.
  SafetensorsTensor stored;
  double factor = 1;  // What ForEachParameter multiplies a matrix b by.
};

// Immutable, thread-safe.
class PeftDirectory {
 public:
  // Finds the parameters of the adapter in the file, and checks that it has all of them, in their
  // shapes, and nothing else. Reads no tensor. Errors name the file, and the tensor:
  // - NOT_FOUND: adapter_model.safetensors is not there.
  // - INVALID_ARGUMENT: the weights are in another format; a tensor is missing, left over, of
  //   another shape or dtype; PEFT would not load what the file has; or layers have scales that do
  //   not differ by powers of two.
  // - DATA_LOSS: the file is damaged.
  static absl::StatusOr<PeftDirectory> Open(const std::string& path, PeftConfig config,
                                            const HfModel& base);

  const std::string& path() const { return path_; }
  const PeftConfig& config() const { return config_; }
  // The numbers of all layers: the largest rank that a layer has, with the alpha of this layer. The
  // narrow matrices of the others become those of this rank and this scale (widen_rank.h).
  const LoraNumbers& numbers() const { return numbers_; }
  const std::vector<PeftWeight>& weights() const { return weights_; }
  // How many numbers ForEachParameter gives.
  int64_t ElementsOf(const PeftWeight& weight) const;
  // The names of all parameters that the adapter trains.
  const std::set<std::string>& trained() const { return trained_; }

  // Reads the tensor, and calls `use` with the values of each of its parameters. `values` has room
  // for the parameter's elements, and belongs to the callee. The parameter's shape is that of the
  // joint rank. INVALID_ARGUMENT: names the tensor and the place of a number that is NaN or
  // infinite, or the tensor that the joint scale would round. DATA_LOSS: the file became shorter.
  using UseParameter = std::function<absl::Status(const HfParameter&, std::vector<char>& values)>;
  absl::Status ForEachParameter(const PeftWeight& weight, const UseParameter& use) const;

 private:
  PeftDirectory(std::string path, PeftConfig config, SafetensorsFile file)
      : path_(std::move(path)), config_(std::move(config)), file_(std::move(file)) {}

  absl::StatusOr<std::vector<TrainedParameter>> FindTrained(const HfModel& base,
                                                            const PeftNames& names);
  // Chooses numbers(), for `layers`, which has the numbers of each layer by the name in PEFT.
  absl::Status JoinNumbers(const std::map<std::string, LoraNumbers>& layers);
  absl::Status AddWeights(const HfModel& base, const PeftTensors& placed);
  absl::Status CheckLoads(const HfModel& base, const PeftNames& names, const PeftTensors& placed);
  absl::Status Refuse(absl::string_view tensor, absl::string_view what) const;

  std::string path_;
  PeftConfig config_;
  SafetensorsFile file_;
  LoraNumbers numbers_;
  std::map<std::string, LoraNumbers, std::less<>> layers_;  // By target (TargetOf).
  std::vector<PeftWeight> weights_;
  std::set<std::string> trained_;
};

}  // namespace trainyard
