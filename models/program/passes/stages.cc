#include <algorithm>
#include <set>
#include <utility>

#include "models/program/op.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// The storages that an instance reads, or whose gradients it writes.
template <typename F>
void ForEachStorage(const Program& program, const Instance& instance, F&& f) {
  for (const std::vector<Value>* values : {&instance.inputs, &instance.outputs}) {
    for (Value value : *values) {
      if (program.info(value).storage >= 0) f(program.info(value).storage);
    }
  }
}

}  // namespace

void KeepStage(Program& program) {
  const int stages = program.mesh.size(Axis::kPipeline);
  const int stage = program.mesh.coordinate(Axis::kPipeline);
  const int parts = int(program.chunks.size());
  CHECK(parts % stages == 0) << parts << " parts of a model on " << stages << " stages";
  std::vector<int> stage_of(size_t(program.num_blocks));
  for (int part = 0; part < parts; ++part) {
    const Chunk& chunk = program.chunks[size_t(part)];
    for (int b = chunk.first_block; b <= chunk.last_block; ++b) stage_of[size_t(b)] = part % stages;
  }

  std::vector<std::set<int>> blocks_of(program.storages.size());  // Of this stage.
  std::vector<std::set<int>> stages_of(program.storages.size());
  for (const Instance& instance : program.instances) {
    ForEachStorage(program, instance, [&](int storage) {
      const int there = stage_of[size_t(instance.block)];
      stages_of[size_t(storage)].insert(there);
      if (there == stage) blocks_of[size_t(storage)].insert(instance.block);
    });
  }
  std::vector<ParameterStorage> storages;
  for (size_t i = 0; i < program.storages.size(); ++i) {
    if (blocks_of[i].empty()) continue;
    ParameterStorage& storage = program.storages[i];
    storage.tied = stages_of[i].size() > 1;
    CHECK(!storage.tied || stages_of[i] == std::set<int>({0, stages - 1}))
        << storage.parameters.front().name << " is shared by stages other than the first and last";
    storage.block = *blocks_of[i].begin();
    storages.push_back(std::move(storage));
  }
  program.storages = std::move(storages);

  std::vector<Chunk> chunks;
  for (int part = stage; part < parts; part += stages) {
    chunks.push_back(program.chunks[size_t(part)]);
  }
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
}

}  // namespace trainyard
