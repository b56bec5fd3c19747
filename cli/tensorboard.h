// A job's history as TensorBoard shows it: one event for each step, and one with the job's spec.

#pragma once

#include "train/export/event.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// Every scalar has the name of its field in StepRecord; what the record does not have is absent.
// Rates are of the step itself; `devices`: of the job.
Event EventOf(const v1::StepRecord& record, uint32_t devices);

// The spec as it was submitted, at step 0.
Event EventOfSpec(const v1::Job& job);

double UnixSeconds(const google::protobuf::Timestamp& time);

}  // namespace trainyard::cli
