#include <algorithm>

#include "models/program/op.h"
#include "models/program/passes/passes.h"

namespace trainyard {

void RemoveDead(Program& program) {
  std::vector<bool> read(program.values.size());
  for (const auto& [name, value] : program.outputs) read[value.id] = true;
  for (const Chunk& chunk : program.chunks) {
    for (const Crossing& sent : chunk.sent) read[sent.value.id] = true;
    for (const Crossing& received : chunk.received) {
      if (received.gradient.valid()) read[received.gradient.id] = true;
    }
  }

  std::vector<Instance> kept;  // In reverse, so that readers come before writers.
  for (auto it = program.instances.rbegin(); it != program.instances.rend(); ++it) {
    std::vector<bool> wanted;
    for (Value output : it->outputs) {
      wanted.push_back(read[output.id] ||
                       program.info(output).kind == ValueKind::kParameterGradient);
    }
    const bool any = std::find(wanted.begin(), wanted.end(), true) != wanted.end();
    if (!any && !it->op->has_effect()) continue;
    kept.push_back(it->op->Narrowed(*it, wanted));
    CheckOperands(kept.back());
    for (Value input : kept.back().inputs) read[input.id] = true;
  }
  std::reverse(kept.begin(), kept.end());
  program.instances = std::move(kept);
}

}  // namespace trainyard
