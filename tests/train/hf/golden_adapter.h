// Adapters that PEFT wrote (tests/golden/lora and peft): reading them, jobs that train beside the
// same base on the same samples, and what checkpoints compute of these samples.

#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/check.h"
#include "models/hf/safetensors.h"
#include "models/model.h"
#include "tests/models/tiny.h"
#include "tests/train/step/run_job.h"
#include "tests/train/step/tensors.h"
#include "train/checkpoint/adapter_of.h"
#include "train/data/indexed.h"
#include "train/step/snapshot.h"
#include "train/tools/indexed_writer.h"

namespace trainyard::testing {

// As in make_lora.py and make_peft.py.
inline constexpr int64_t kAdapterSamples = 4, kAdapterSequence = 9;
inline constexpr char kAdapterPrefix[] = "base_model.model.";

inline SafetensorsFile OpenSafetensors(const std::string& path) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  CHECK(file.ok()) << file.status();
  return *std::move(file);
}

template <typename T>
std::vector<T> ReadTensor(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsTensor& tensor = file.tensors().at(name);
  CHECK(SizeOf(tensor.dtype) == sizeof(T)) << name;
  std::vector<T> values(tensor.bytes / sizeof(T));
  CHECK(file.Read(tensor, 0, values.data(), tensor.bytes).ok());
  return values;
}

// The tensors of a file of f64, without PEFT's prefix.
inline Tensors ReadAdapter(const std::string& path) {
  const SafetensorsFile file = OpenSafetensors(path);
  Tensors tensors;
  for (const auto& [name, tensor] : file.tensors()) {
    CHECK(name.starts_with(kAdapterPrefix)) << name;
    tensors[name.substr(sizeof(kAdapterPrefix) - 1)] = ReadTensor<double>(file, name);
  }
  return tensors;
}

inline nlohmann::json ReadJson(const std::string& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

// A job on these tokens, without an adapter and a base. `path` is where its files lie.
inline JobConfig JobOnTokens(const ModelConfig& model, const std::vector<int64_t>& tokens,
                             const std::string& path) {
  const std::string prefix = path + "-tokens";
  const auto writer = IndexedWriter::Create(prefix, IndexDType::kInt32);
  CHECK(writer.ok()) << writer.status();
  CHECK((*writer)->AddDocument(std::vector<int32_t>(tokens.begin(), tokens.end())).ok());
  CHECK((*writer)->Finish().ok());
  JobConfig job = TinyJob(path);
  job.model.architecture = GivenModel{.family = model.family()};
  for (const Field& field : FieldsOf(model)) {
    job.model.architecture->fields[field.rule.name] = field.value;
  }
  job.batch = {.global = kAdapterSamples, .micro = 1, .sequence = kAdapterSequence};
  job.data = IndexedData{.prefix = prefix};
  job.seed = 11;
  return job;
}

// The logits of the checkpoint, with its adapter if it has one.
inline std::vector<double> LogitsOf(const Checkpoint& checkpoint,
                                    const std::vector<int64_t>& tokens) {
  const ModelConfig& model = checkpoint.state().model;
  const auto executable =
      Bind(RecordInference(*CreateModel(model), {.precision = Precision::F64(),
                                                 .micro_batch = kAdapterSamples,
                                                 .sequence = kAdapterSequence,
                                                 .adapter = AdapterOf(checkpoint)}));
  const absl::Status loaded = LoadSnapshot(checkpoint, LoadWhat::kParameters, *executable);
  CHECK(loaded.ok()) << loaded;
  executable->Run(Action::kPrepare);
  executable->WriteInput("tokens", 0, std::vector<int32_t>(tokens.begin(), tokens.end() - 1));
  executable->Run(Action::kForward);
  std::vector<double> logits(size_t(kAdapterSamples * kAdapterSequence * FactsOf(model).vocab));
  executable->ReadOutput("logits", 0, logits.data(), logits.size() * sizeof(double));
  return logits;
}

inline std::vector<double> LossesOf(const RankRun& run) {
  std::vector<double> losses;
  for (const StepRecord& record : run.records) losses.push_back(record.loss);
  return losses;
}

inline std::vector<double> NormsOf(const RankRun& run) {
  std::vector<double> norms;
  for (const StepRecord& record : run.records) norms.push_back(record.grad_norm);
  return norms;
}

}  // namespace trainyard::testing
