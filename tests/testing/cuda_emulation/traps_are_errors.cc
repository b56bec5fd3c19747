// Linked by a test whose device is to survive its traps as a real one does: not at all, but without
// the end of the process.

#include "cuda_runtime.h"

namespace {

const bool kDone = [] {
  cuda_emulation::MakeTrapsErrors();
  return true;
}();

}  // namespace
