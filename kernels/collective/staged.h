// Ranks whose tensors lie in a device's memory: the host's world carries what ranks tell each
// other, and another one the tensors.

#pragma once

#include <memory>

#include "kernels/collective/world.h"
#include "kernels/device/backend.h"

namespace trainyard {

// Copies tensors to the host, and back: for several ranks on one GPU, which NCCL refuses, and for
// tests. `host` and `backend` must outlive it. Its groups must Follow() the Exec whose tensors they
// carry before their first operation.
std::unique_ptr<CollectiveWorld> CreateStagedWorld(CollectiveWorld& host, const Backend& backend);

// Everyone() of `host`, all other groups of `tensors`, which has the same ranks.
std::unique_ptr<CollectiveWorld> CreateDeviceWorld(CollectiveWorld& host,
                                                   std::unique_ptr<CollectiveWorld> tensors);

}  // namespace trainyard
