// Ranks with tensors in a device's memory, connected by what moves the host's: every operation
// copies to the host, and back. For several ranks on one GPU, which NCCL refuses, and for tests.

#pragma once

#include <memory>

#include "kernels/collective/world.h"
#include "kernels/device/backend.h"

namespace trainyard {

// Of the same ranks as `host`, which must outlive it, as must `backend`. Its groups must Follow()
// the Exec whose tensors they carry before their first operation.
std::unique_ptr<CollectiveWorld> CreateStagedWorld(CollectiveWorld& host, const Backend& backend);

}  // namespace trainyard
