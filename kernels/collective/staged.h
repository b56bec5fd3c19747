// Worlds for ranks whose tensors are in a device's memory. The host's world carries what ranks tell
// each other, and another world carries the tensors.

#pragma once

#include <memory>

#include "kernels/collective/world.h"
#include "kernels/device/backend.h"

namespace trainyard {

// Returns a world that copies tensors to the host and back: for several ranks on one GPU, which
// NCCL refuses, and for tests. `host` and `backend` must outlive it. Before its first operation, a
// group must Follow() the Exec whose tensors it carries.
std::unique_ptr<CollectiveWorld> CreateStagedWorld(CollectiveWorld& host, const Backend& backend);

// Returns a world whose Everyone() is that of `host`, and whose other groups are those of
// `tensors`. Both must have the same ranks.
std::unique_ptr<CollectiveWorld> CreateDeviceWorld(CollectiveWorld& host,
                                                   std::unique_ptr<CollectiveWorld> tensors);

}  // namespace trainyard
