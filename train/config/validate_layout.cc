#include "train/config/validate_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

// The number closest to `found` in [1, most] that is legal; 1 always is.
template <typename Legal>
int64_t Nearest(int64_t found, int64_t most, Legal&& legal) {
  found = std::clamp<int64_t>(found, 1, most);
  for (int64_t distance = 0; distance < most; ++distance) {
    if (found - distance >= 1 && legal(found - distance)) return found - distance;
    if (found + distance <= most && legal(found + distance)) return found + distance;
  }
  return 1;
}

// Returns whether it is legal.
bool CheckTensor(const JobConfig& job, const ModelConfig& model, Violations& violations) {
  const auto legal = [&](int64_t t) {
    return model.heads % t == 0 && model.ffn % t == 0 && model.vocab % t == 0 &&
           (model.kv_heads % t == 0 || t % model.kv_heads == 0);
  };
  const int64_t tensor = job.parallelism.tensor;
  if (legal(tensor)) return true;
  violations.Add(
      "parallelism.tensor",
      Wanted(absl::StrCat("a number that divides heads = ", model.heads, ", ffn = ", model.ffn,
                          " and vocab = ", model.vocab, ", and divides kv_heads = ", model.kv_heads,
                          " or is a multiple of it"),
             tensor, Nearest(tensor, model.heads, legal)));
  return false;
}

// The parts of the pipeline, and whether its schedule can run.
void CheckPipeline(const JobConfig& job, const ModelConfig& model, Violations& violations) {
  const ParallelismConfig& p = job.parallelism;
  const int64_t blocks = model.layers + 2;
  if (p.pipeline * p.virtual_pipeline > blocks) {
    violations.Add(
        p.virtual_pipeline > 1 ? "parallelism.virtual_pipeline" : "parallelism.pipeline",
        Wanted(absl::StrCat("at most ", blocks, " parts of ", model.layers,
                            " layers, embedding and head"),
               absl::StrCat(p.pipeline, " x ", p.virtual_pipeline),
               std::max<int64_t>(1, p.virtual_pipeline > 1 ? blocks / p.pipeline : blocks)));
    return;
  }
  const absl::Status schedule = ScheduleOptions{.kind = p.schedule_kind(),
                                                .stages = int(p.pipeline),
                                                .chunks = int(p.virtual_pipeline),
                                                .micro_batches = int(AccumulationSteps(job))}
                                    .Validate();
  if (!schedule.ok()) violations.Add("parallelism.schedule", schedule.message());
}

void CheckSequence(const JobConfig& job, Violations& violations) {
  const ParallelismConfig& p = job.parallelism;
  const int64_t sequence = job.batch.sequence;
  if (p.context > 1 && sequence % (2 * p.context) != 0) {
    const int64_t unit = 2 * p.context;
    violations.Add("batch.sequence",
                   Wanted(absl::StrCat("a multiple of 2 x context = ", unit), sequence,
                          std::max<int64_t>(1, (sequence + unit / 2) / unit) * unit));
  }
}

void CheckTokens(const JobConfig& job, Violations& violations) {
  const ParallelismConfig& p = job.parallelism;
  const int64_t rows = job.batch.micro * job.batch.sequence / p.context;
  if (rows % p.tensor != 0) {
    violations.Add(
        "parallelism.tensor",
        Wanted(
            absl::StrCat("a number that divides the ", rows, " tokens of a micro-batch on a rank"),
            p.tensor, Nearest(p.tensor, rows, [&](int64_t t) { return rows % t == 0; })));
  }
}

}  // namespace

bool ValidateAxes(const JobConfig& job, Violations& violations) {
  const ParallelismConfig& p = job.parallelism;
  bool legal = p.expert == 1;
  const auto range = [&](const char* name, int64_t size) {
    if (size >= 1 && size <= kMaxDevices) return;
    legal = false;
    violations.Add(name, Wanted(absl::StrCat("1 to ", kMaxDevices), size,
                                std::clamp<int64_t>(size, 1, kMaxDevices)));
  };
  range("parallelism.tensor", p.tensor);
  range("parallelism.pipeline", p.pipeline);
  range("parallelism.virtual_pipeline", p.virtual_pipeline);
  range("parallelism.context", p.context);
  if (p.expert != 1) {
    violations.Add("parallelism.expert", Wanted("1 (no model has experts so far)", p.expert, 1));
  }
  range("devices", job.devices);
  if (!legal) return false;
  const int64_t unit = p.tensor * p.pipeline * p.context;
  if (job.devices % unit == 0) return true;
  violations.Add("devices",
                 Wanted(absl::StrCat("a multiple of tensor x pipeline x context = ", p.tensor,
                                     " x ", p.pipeline, " x ", p.context, " = ", unit),
                        job.devices, std::max<int64_t>(1, (job.devices + unit / 2) / unit) * unit));
  return false;
}

void ValidateLayout(const JobConfig& job, const ModelConfig& model, Violations& violations) {
  CheckSequence(job, violations);
  if (CheckTensor(job, model, violations)) CheckTokens(job, violations);
  CheckPipeline(job, model, violations);
}

}  // namespace trainyard
