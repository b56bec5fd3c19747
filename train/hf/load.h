// Fills a rank's boxes from a Hugging Face directory, without a checkpoint in between.

#pragma once

#include <span>

#include "absl/status/status.h"
#include "models/hf/model.h"
#include "train/checkpoint/target_box.h"

namespace trainyard {

// Fills boxes of parameters as Checkpoint::Load does, with the same bits as a load from the
// checkpoint that ImportHf makes of the directory. Reads little more than the rows of the boxes
// where the directory has a parameter as it is, and one slice of a tensor elsewhere (HfLayout).
// INVALID_ARGUMENT: the directory lacks a tensor, or has it with another shape or dtype; no box is
// changed. DATA_LOSS: a file became shorter.
absl::Status LoadHf(const HfModel& model, std::span<const TargetBox> boxes,
                    const BoxCopy& to_device = nullptr);

}  // namespace trainyard
