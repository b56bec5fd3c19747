#include "models/program/ops/caches.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace trainyard::ops {

Value CacheOf(Recorder& recorder, const char* op, const ValueInfo& like) {
  const Program& program = recorder.program();
  const int first = program.chunks.back().first_block;
  const auto number = std::count_if(program.instances.begin(), program.instances.end(),
                                    [&](const Instance& instance) {
                                      return instance.block >= first && instance.op->name() == op;
                                    });
  const std::string name = absl::StrCat(kCache, op, "_", number);
  const auto shared = program.inputs.find(name);
  if (shared != program.inputs.end()) return shared->second;
  return recorder.Input(name, like.shape, like.dtype, like.varying);
}

}  // namespace trainyard::ops
