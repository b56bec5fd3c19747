#include <algorithm>

#include "models/program/op.h"
#include "models/program/passes/passes.h"

namespace trainyard {

void RemoveDead(Program& program) {
  std::vector<bool> read(program.values.size());
  for (const auto& [name, value] : program.outputs) read[value.id] = true;
  for (const Chunk& chunk : program.chunks) {
    if (chunk.sent.valid()) read[chunk.sent.id] = true;
    if (chunk.sent_gradient.valid()) read[chunk.sent_gradient.id] = true;
  }

  std::vector<Instance> kept;  // In reverse, so that readers come before writers.
  for (auto it = program.instances.rbegin(); it != program.instances.rend(); ++it) {
    bool alive = it->op->has_effect();
    for (Value output : it->outputs) {
      alive |= read[output.id] || program.info(output).kind == ValueKind::kParameterGradient;
    }
    if (!alive) continue;
    for (Value input : it->inputs) read[input.id] = true;
    kept.push_back(std::move(*it));
  }
  std::reverse(kept.begin(), kept.end());
  program.instances = std::move(kept);
}

}  // namespace trainyard
