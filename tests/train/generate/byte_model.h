// Checkpoints of tiny models of bytes, of every family of text.

#pragma once

#include <string>
#include <vector>

#include "models/arch/registry.h"
#include "tests/families/family_case.h"
#include "tests/train/step/run_job.h"

namespace trainyard::testing {

inline std::vector<std::string> Decoders() {
  std::vector<std::string> families;
  for (const Family& family : Families()) {
    if (CaseOf(family.name).is_decoder) families.push_back(family.name);
  }
  return families;
}

// A job that trains a model in f64, with a window of 12. Up to four tensor ranks can divide it.
inline JobConfig ByteJob(const std::string& family, const std::string& directory) {
  JobConfig job = TinyJob(directory);
  job.model.architecture->family = family;
  GivenFields& fields = job.model.architecture->fields;
  fields["vocab"] = int64_t{256};
  const ModelConfig& defaults = FindFamily(family)->defaults;
  if (FactsOf(defaults).experts) {
    fields["moe.experts"] = 4, fields["moe.top_k"] = 2, fields["moe.expert_ffn"] = 8;
    fields["moe.aux_loss"] = 0.01;
  }
  for (const auto& [field, value] : CaseOf(family).emulated) fields[field] = value;
  for (const char* const field : {"mamba_heads", "mamba_groups"}) fields[field] = int64_t{4};
  std::erase_if(fields, [&](const auto& field) { return !HasField(defaults, field.first); });
  job.optimizer.options["learning_rate"] = 0.1;
  return job;
}

inline std::string CheckpointOf(const std::string& family) {
  const JobConfig job = ByteJob(family, FreshDirectory("byte_model_" + family));
  const RankRun run = RunJob(job)[0];
  CHECK(run.status.ok()) << run.status;
  return job.checkpoint->directory;
}

}  // namespace trainyard::testing
