// The heap of a test program, in memory of the host that the GPU reads and writes, too: tests of
// kernels then run on a GPU as they are, with tensors in vectors.

#pragma once

namespace trainyard::testing {

// From now on `new` takes such memory. What was allocated before stays where it is.
void UseMappedHeap();

}  // namespace trainyard::testing
