#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "models/program/ops/ops.h"
#include "models/program/optimizer/matrices.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// The ranges of the gradient that this rank counts for the norm. Each element is counted by exactly
// one of the ranks that hold it: the first along the axes over which it is not divided. The
// "gradients" of state are not counted.
std::vector<FlatRange> Counted(const Program& program) {
  const std::vector<ParameterBox> boxes = program.Parameters();
  std::vector<FlatRange> counted;
  for (const Bucket& bucket : program.buckets) {
    bool follows = false;  // Between adjacent boxes there is only padding, which is zero.
    for (const ParameterBox& box : Within(boxes, bucket.own)) {
      const FlatRange range = box.flat.Intersect(bucket.own);
      const bool first = program.mesh.coordinate(box.copy_axes - bucket.zero_axes) == 0;
      const bool mine = first && !box.state;
      if (mine && follows) {
        counted.back().elements = range.end() - counted.back().offset;
      } else if (mine) {
        counted.push_back(range);
      }
      follows = mine;
    }
  }
  return counted;
}

bool Reads(const Program& program, const Instance& instance, const FlatRange& flat) {
  return std::any_of(instance.inputs.begin(), instance.inputs.end(), [&](Value input) {
    return program.info(input).kind == ValueKind::kParameter && !program.storage(input).frozen &&
           !program.storage(input).flat.Intersect(flat).empty();
  });
}

// Makes each instance wait for `event` that may be the first of its chunk to read the bucket after
// the optimizer. Forward comes before backward, but what reads in validation alone does not run in
// a step, and what reads in backward alone has no forward to wait for it.
void AwaitGather(Program& program, const Bucket& bucket, int event) {
  std::set<std::tuple<int, List, When>> awaited;  // Chunk, list and replays.
  for (Instance& instance : program.instances) {
    if (instance.list != List::kForward && !IsBackward(instance.list)) continue;
    if (!Reads(program, instance, bucket.flat)) continue;
    const int chunk = program.chunk_of(instance.block);
    if (awaited.contains({chunk, List::kForward, When::kAlways})) continue;
    if (!awaited.insert({chunk, instance.list, instance.when}).second) continue;
    instance.awaits.push_back(event);
  }
}

// Gathers the updated copies of each bucket in the order in which forward reads them, while the
// next work runs.
void GatherUpdated(Program& program) {
  std::vector<Bucket> buckets;
  std::copy_if(program.buckets.begin(), program.buckets.end(), std::back_inserter(buckets),
               [](const Bucket& bucket) { return bucket.gathered(); });
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.first_block < b.first_block; });
  for (size_t i = 0; i < buckets.size(); ++i) {
    const int event = kWindowEvents + int(i);
    AwaitGather(program, buckets[i], event);
    Instance gather = ops::GatherBucket(List::kOptimizer, Stream::kCommunication, buckets[i]);
    gather.signals = event;
    program.instances.push_back(std::move(gather));
  }
}

void UpdateState(Recorder& recorder, const UpdateRun& run, ops::StateRange range) {
  switch (run.state->kind) {
    case StateRule::Kind::kBalanceBias:
      return ops::BalanceBias(recorder, range, run.state->rate);
    case StateRule::Kind::kAmaxHistory:
      range.flat.elements = range.shard.elements = run.elements;
      return ops::AmaxHistory(recorder, range, run.steps);
  }
}

// The job's options, and those for gains and biases.
struct BothOptions {
  const OptimizerOptions& options;
  const OptimizerOptions& without_decay;
};

// Appends each box that the optimizer updates. How an element is rounded depends on its place in
// the parameter.
void AppendBoxes(std::span<const ParameterBox> boxes, const Bucket& bucket, const BothOptions& both,
                 std::vector<UpdateRange>& ranges) {
  for (const ParameterBox& whole : Within(boxes, bucket.own)) {
    if (whole.state) continue;
    for (const ParameterBox& box : Clip(whole, bucket.own)) {
      Append(ranges, {.flat = box.flat,
                      .shard = {.offset = box.flat.offset - bucket.own.offset + bucket.shard.offset,
                                .elements = box.flat.elements},
                      .writes_compute = bucket.copied,
                      .options = box.decay ? both.options : both.without_decay,
                      .place = PlaceInParameter(box)});
    }
  }
}

}  // namespace

std::vector<UpdateRun> UpdateRuns(const Program& program, const Optimizer& optimizer) {
  std::vector<UpdateRun> runs;
  for (const ParameterStorage& storage : program.storages) {
    if (storage.frozen) continue;
    const ParameterSpec& first = storage.parameters.front();
    const UpdateRun next{.flat = {.offset = storage.flat.offset},
                         .decay = storage.decay,
                         .matrices = HasMatrices(program, storage, optimizer),
                         .state = first.state,
                         .elements = storage.flat.elements,
                         .steps = storage.shape.back()};
    const auto kind = [](const UpdateRun& run) {
      return std::tie(run.decay, run.matrices, run.state);
    };
    const bool same = !runs.empty() && kind(runs.back()) == kind(next) && !first.is_history();
    if (!same) runs.push_back(next);
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const int64_t end = i + 1 < runs.size() ? runs[i + 1].flat.offset : program.flat_elements;
    runs[i].flat.elements = end - runs[i].flat.offset;
  }
  return runs;
}

void RecordOptimizer(Recorder& recorder, const OptimizerOptions& options) {
  const Program& program = recorder.program();
  ops::WaitForCommunication(recorder, List::kOptimizer);
  for (const Bucket& bucket : program.buckets) {
    if (bucket.tied) ops::ReduceTied(recorder, bucket.own);
  }
  for (const FlatRange& range : Counted(program)) ops::SumSquares(recorder, range);
  ops::ReduceScalars(recorder, program.mesh.active());
  ops::Clip(recorder);

  OptimizerOptions without_decay = options;
  without_decay["weight_decay"] = 0;
  const std::vector<UpdateRun> runs = UpdateRuns(program, options.optimizer());
  std::vector<UpdateRange> ranges;
  const bool by_box = options.state() == OptimizerState::kCompact;
  CHECK(by_box == program.precision.split_masters)
      << "the optimizer's state and the precision do not agree";
  const std::vector<ParameterBox> boxes = program.Parameters();
  for (const Bucket& bucket : program.buckets) {
    if (by_box) {
      AppendBoxes(boxes, bucket, {.options = options, .without_decay = without_decay}, ranges);
    }
    for (const UpdateRun& run : runs) {
      const FlatRange flat = run.flat.Intersect(bucket.own);
      if (flat.empty() || run.matrices || (by_box && !run.state)) continue;
      const FlatRange shard{.offset = flat.offset - bucket.own.offset + bucket.shard.offset,
                            .elements = flat.elements};
      if (run.state) {
        UpdateState(recorder, run, {.flat = flat, .shard = shard});
        continue;
      }
      Append(ranges, {.flat = flat,
                      .shard = shard,
                      .writes_compute = bucket.copied,
                      .options = run.decay ? options : without_decay});
    }
  }
  for (const UpdateRange& range : ranges) {
    recorder.EmitEffect(UpdateOp(range), List::kOptimizer);
  }
  RecordMatrixUpdates(recorder, options);
  GatherUpdated(recorder.mutable_program());
  if (program.has_windows()) ops::ForgetBlocks(recorder, List::kOptimizer);
}

}  // namespace trainyard
