// Fills a rank's boxes from a Hugging Face directory, without a checkpoint in between.

#pragma once

#include <map>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "models/hf/model.h"
#include "train/checkpoint/target_box.h"

namespace trainyard {

class HfLoader {
 public:
  // `model` must outlive this object.
  explicit HfLoader(const HfModel& model);

  // Fills boxes of parameters as Checkpoint::Load does, with the same bits as a load from the
  // checkpoint that ImportHf makes of the directory. Reads little more than the rows of the boxes
  // where the directory has a parameter as it is, and one slice of a tensor elsewhere (HfLayout).
  // INVALID_ARGUMENT: the directory lacks a tensor, or has it with another shape or dtype; no box
  // is changed. DATA_LOSS: a file became shorter.
  absl::Status Load(std::span<const TargetBox> boxes, const BoxCopy& to_device = nullptr) const;

 private:
  struct Place {
    const HfWeight* weight = nullptr;
    const HfParameter* parameter = nullptr;
  };
  static absl::Status ReadBox(const Place& place, const Box& box, char* data);

  const HfModel& model_;
  std::map<std::string, Place> places_;  // By the parameter's name.
};

}  // namespace trainyard
