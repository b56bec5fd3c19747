// Shrinks a job to fewer devices than it was written for, as publishers make proxies of models that
// need a whole cluster.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

struct ScaleLimits {
  int64_t devices = 1;  // At least 1.
  // The most devices of one machine, where the ranks of a tensor group must be. 0: any number.
  int64_t devices_of_machine = 0;
  // Whether each rank of a valid job has the memory that it needs. Null: every job fits.
  std::function<bool(const JobConfig& job, const ModelConfig& model)> fits = nullptr;
};

// A field of the spec that changes. The values are as in a spec.
struct ScaledField {
  std::string path;  // "batch.global"
  std::string from;
  std::string to;
  std::string why;
};

struct ScaledJob {
  JobConfig job;
  std::vector<ScaledField> changes;  // That make `job` of the given one.
  bool fits = true;
};

// Returns the job as it runs on at most `limits.devices` devices. Shrinks only what must shrink, in
// this order, after the tensor axis, which becomes its greatest divisor that one machine holds:
//
// 1. The data axis, and the global batch with it: a rank keeps its micro-batches. The expert axis
//    becomes the greatest divisor that it and the new data axis have in common.
// 2. If one copy of the model takes more than all devices: the pipeline together with the layers,
//    so that a stage keeps its blocks, then the context axis, then the tensor axis, each to its
//    greatest divisor that is small enough. A job left with one stage has no virtual stages, and no
//    schedule that needs several.
// 3. Layers, until the job fits; then, if the pipeline's parts need more layers than fit, its
//    virtual stages. If the job does not fit with the fewest layers, these remain, and `fits` is
//    false.
//
// recompute.blocks is at most the layers of a stage. A job that begins with the parameters of
// another model keeps its layers.
//
// The result is legal (Validate), unless the job is illegal with any number of layers: then the
// layers are those of step 2, and `fits` is true.
//
// The job's axes and batch must be legal (ValidateLayout without a model). `model` is its model,
// and must be valid.
ScaledJob ScaleTo(const JobConfig& job, const ModelConfig& model, const ScaleLimits& limits);

}  // namespace trainyard
