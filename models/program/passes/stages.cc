#include <algorithm>
#include <set>
#include <utility>

#include "models/program/op.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// Calls f for the storages that an instance reads or whose gradients it writes.
template <typename F>
void ForEachStorage(const Program& program, const Instance& instance, F&& f) {
  for (const std::vector<Value>* values : {&instance.inputs, &instance.outputs}) {
    for (Value value : *values) {
      if (program.info(value).storage >= 0) f(program.info(value).storage);
    }
  }
}

}  // namespace

void KeepStage(Program& program, const std::vector<int>& stages) {
  const int stage = program.mesh.coordinate(Axis::kPipeline);
  CHECK(stages.size() == program.chunks.size())
      << program.chunks.size() << " parts of a model, " << stages.size() << " of them placed";
  std::vector<int> stage_of(size_t(program.num_blocks));
  std::vector<Chunk> chunks;
  for (size_t part = 0; part < stages.size(); ++part) {
    const Chunk& chunk = program.chunks[part];
    for (int b = chunk.first_block; b <= chunk.last_block; ++b) stage_of[size_t(b)] = stages[part];
    if (stages[part] == stage) chunks.push_back(chunk);
  }
  CHECK(!chunks.empty()) << "stage " << stage << " holds no part of the model";

  std::vector<std::set<int>> blocks_of(program.storages.size());  // On this stage, by storage.
  std::vector<std::set<int>> stages_of(program.storages.size());
  for (const Instance& instance : program.instances) {
    ForEachStorage(program, instance, [&](int storage) {
      const int there = stage_of[size_t(instance.block)];
      stages_of[size_t(storage)].insert(there);
      if (there == stage) blocks_of[size_t(storage)].insert(instance.block);
    });
  }
  std::vector<ParameterStorage> storages;
  std::set<int> sharing;
  for (size_t i = 0; i < program.storages.size(); ++i) {
    ParameterStorage& storage = program.storages[i];
    storage.tied = stages_of[i].size() > 1;
    if (storage.tied) {
      CHECK(sharing.empty() || sharing == stages_of[i])
          << storage.parameters.front().name
          << " is shared by other stages than another tied weight";
      sharing = stages_of[i];
    }
    if (blocks_of[i].empty()) continue;
    storage.block = *blocks_of[i].begin();
    storages.push_back(std::move(storage));
  }
  program.storages = std::move(storages);
  program.mesh.sharing_stages.assign(sharing.begin(), sharing.end());
  program.chunks = std::move(chunks);
  std::erase_if(program.instances, [&](const Instance& instance) {
    return instance.list != List::kPrepare && stage_of[size_t(instance.block)] != stage;
  });
  std::erase_if(program.inputs, [&](const auto& input) {
    const auto reads = [&](const Instance& instance) {
      return std::count(instance.inputs.begin(), instance.inputs.end(), input.second) > 0;
    };
    return std::none_of(program.instances.begin(), program.instances.end(), reads);
  });
  std::erase_if(program.outputs, [&](const auto& output) {
    return stage_of[size_t(program.info(output.second).block)] != stage;
  });
}

}  // namespace trainyard
