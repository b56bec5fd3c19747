// Converts a job's history to TensorBoard's events: one for each step, and one with the job's spec.

#pragma once

#include "train/export/event.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// Returns the event of a step. Every scalar has the name of its field in StepRecord. Values that
// the record lacks are left out. What the model wrote is generated/0 for the first prompt, and so
// on. Rates are those of this step. `devices`: the job's devices.
SummaryEvent EventOf(const v1::StepRecord& record, uint32_t devices);

// Returns the event with the submitted spec, at step 0.
SummaryEvent EventOfSpec(const v1::Job& job);

double UnixSeconds(const google::protobuf::Timestamp& time);

}  // namespace trainyard::cli
