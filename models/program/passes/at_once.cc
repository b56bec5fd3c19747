#include <map>
#include <utility>
#include <vector>

#include "models/program/passes/passes.h"

namespace trainyard {

void RoundAtOnce(Program& program) {
  using Place = std::pair<List, int>;  // List and block.
  std::map<Place, std::vector<Instance>> first;
  for (Instance& instance : program.instances) {
    if (instance.when != When::kFirstMicroBatch) continue;
    first[{instance.list, instance.block}].push_back(instance);
  }
  if (first.empty()) return;
  std::vector<Instance> instances;
  for (Instance& instance : program.instances) {
    if (const auto at_once = first.extract({instance.list, instance.block})) {
      for (Instance& early : at_once.mapped()) instances.push_back(std::move(early));
    }
    if (instance.when != When::kFirstMicroBatch) instances.push_back(std::move(instance));
  }
  program.instances = std::move(instances);
}

}  // namespace trainyard
