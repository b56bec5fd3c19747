#include <vector>

#include "models/program/op.h"
#include "models/program/passes/passes.h"

namespace trainyard {

void DropUnreadCrossings(Program& program) {
  std::vector<Value> sent_as(program.values.size());  // By received value: the sender's value.
  for (size_t c = 1; c < program.chunks.size(); ++c) {
    const std::vector<Crossing>& received = program.chunks[c].received;
    for (size_t i = 0; i < received.size(); ++i) {
      sent_as[size_t(received[i].value.id)] = program.chunks[c - 1].sent[i].value;
    }
  }
  std::vector<bool> wanted(program.values.size());
  const auto want = [&](Value value) {
    for (; value.valid(); value = sent_as[size_t(value.id)]) wanted[size_t(value.id)] = true;
  };
  for (const auto& [name, value] : program.outputs) want(value);
  for (auto it = program.instances.rbegin(); it != program.instances.rend(); ++it) {
    bool lives = it->op->has_effect();
    for (Value output : it->outputs) lives |= wanted[size_t(output.id)];
    if (!lives) continue;
    for (Value input : it->inputs) want(input);
  }
  for (size_t c = 1; c < program.chunks.size(); ++c) {
    std::vector<Crossing>& received = program.chunks[c].received;
    std::vector<Crossing>& sent = program.chunks[c - 1].sent;
    for (size_t i = received.size(); i-- > 0;) {
      if (wanted[size_t(received[i].value.id)]) continue;
      received.erase(received.begin() + ptrdiff_t(i));
      sent.erase(sent.begin() + ptrdiff_t(i));
    }
  }
}

}  // namespace trainyard
