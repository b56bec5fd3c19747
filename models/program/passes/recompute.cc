#include <algorithm>
#include <utility>

#include "models/program/op.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

constexpr int kNotMade = -1;  // Made by the host, another stage, or list kPrepare.

class Recomputation {
 public:
  Recomputation(Program& program, const RecomputeOptions& options)
      : program_(program),
        options_(options),
        maker_(program.values.size(), kNotMade),
        kept_(program.values.size()),
        again_(program.values.size()) {
    FindBlocks();
    FindMakers();
  }

  void Run() {
    for (const Instance& instance : program_.instances) {
      Instance reader = instance;
      if (IsBackward(instance.list)) {
        for (Value& input : reader.inputs) input = Again(input);
      }
      instances_.push_back(std::move(reader));
    }
    program_.instances = std::move(instances_);
  }

 private:
  // Finds the first layers of this stage. Embedding and head are not layers.
  void FindBlocks() {
    whole_.resize(size_t(program_.num_blocks));
    int64_t left = options_.blocks;
    for (const Chunk& chunk : program_.chunks) {
      for (int block = chunk.first_block; block <= chunk.last_block && left > 0; ++block) {
        if (block == 0 || block == program_.num_blocks - 1) continue;
        whole_[size_t(block)] = true;
        --left;
      }
    }
  }

  void FindMakers() {
    for (size_t i = 0; i < program_.instances.size(); ++i) {
      const Instance& instance = program_.instances[i];
      if (instance.list != List::kForward) continue;
      for (Value output : instance.outputs) maker_[size_t(output.id)] = int(i);
      // Keeps the values that pass from block to block, because the next block starts from them.
      for (Value input : instance.inputs) {
        const int maker = maker_[size_t(input.id)];
        if (maker != kNotMade && program_.instances[size_t(maker)].block != instance.block) {
          kept_[size_t(input.id)] = true;
        }
      }
    }
    for (const Chunk& chunk : program_.chunks) {
      for (const Crossing& sent : chunk.sent) kept_[size_t(sent.value.id)] = true;
    }
  }

  bool Recomputes(const Instance& instance) const {
    // A loss that is computed again would be counted again.
    if (instance.op->is_loss() || instance.op->has_effect()) return false;
    if (instance.when == When::kFirstMicroBatch) return false;  // Its outputs are step constants.
    return whole_[size_t(instance.block)] ||
           (options_.norms_and_activations && instance.op->is_cheap());
  }

  // Returns the value that a backward instance reads instead of `value`: `value` itself if it is
  // kept. Otherwise the value is computed again, once, right before the first instance that reads
  // it.
  Value Again(Value value) {
    const int maker = maker_[size_t(value.id)];
    if (maker == kNotMade || kept_[size_t(value.id)]) return value;
    if (again_[size_t(value.id)].valid()) return again_[size_t(value.id)];
    Instance instance = program_.instances[size_t(maker)];
    if (!Recomputes(instance)) return value;
    if (!whole_[size_t(instance.block)]) {
      instance = instance.op->CheapPart(instance);
      CheckOperands(instance);
      if (std::count(instance.outputs.begin(), instance.outputs.end(), value) == 0) return value;
    }
    instance.list = List::kBackwardInput;
    for (Value& input : instance.inputs) input = Again(input);
    for (Value& output : instance.outputs) {
      const Value first = std::exchange(output, {int32_t(program_.values.size())});
      program_.values.push_back(program_.info(first));
      again_[size_t(first.id)] = output;
    }
    instances_.push_back(std::move(instance));
    return again_[size_t(value.id)];
  }

  Program& program_;
  const RecomputeOptions options_;
  std::vector<bool> whole_;   // By block: all of it is computed again.
  std::vector<int> maker_;    // By value id: index of the forward instance.
  std::vector<bool> kept_;    // By value id.
  std::vector<Value> again_;  // By value id; invalid: not computed again so far.
  std::vector<Instance> instances_;
};

}  // namespace

void Recompute(Program& program, const RecomputeOptions& options) {
  if (options.blocks == 0 && !options.norms_and_activations) return;
  Recomputation(program, options).Run();
  RemoveDead(program);
}

}  // namespace trainyard
