// Loads weights in NF4 from a source that has their numbers.

#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "models/program/program.h"
#include "train/checkpoint/target_box.h"

namespace trainyard {

// What a checkpoint or a directory can do.
struct LoadingSource {
  // Whether it has a tensor of this name.
  std::function<bool(const std::string& name)> has;
  // Fills boxes, as Checkpoint::Load does. Null: the boxes lie in the host's memory.
  std::function<absl::Status(std::span<const TargetBox> boxes, const BoxCopy& to_device)> load;
};

// The shapes of the weights that the program has in NF4, by name: those of experts by the names
// that they have one by one, also if another rank has them. With ZeRO FULL this rank may keep
// groups of a weight whose codes and scales are all on other ranks.
std::map<std::string, Shape> ShapesInNf4(const Program& program);

// Fills all boxes. `shapes` are those of the program of the boxes. Parts of weights in NF4
// (models/program/nf4.h) that the source lacks are made of the weight's numbers: each rank reads
// the whole weight for this, one weight after the other, and takes its parts. It needs memory for
// the numbers of one weight, in f32 and in the source's dtype. Errors are those of the source, and
// INVALID_ARGUMENT, which names a weight with a number that is not finite.
absl::Status LoadQuantizing(std::vector<TargetBox> boxes,
                            const std::map<std::string, Shape>& shapes, const LoadingSource& source,
                            const BoxCopy& to_device);

}  // namespace trainyard
