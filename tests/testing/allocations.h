// Counts the calls of operator new, of the whole program and every thread.

#pragma once

#include <cstdint>

namespace trainyard::testing {

int64_t Allocations();

}  // namespace trainyard::testing
