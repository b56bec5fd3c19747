// The flat buffers: layout, initial values, optimizer.
#include <algorithm>

#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {

void LayOutParameters(Program& program) {
  std::vector<ParameterStorage>& storages = program.storages;
  std::stable_sort(storages.begin(), storages.end(),
                   [](const ParameterStorage& a, const ParameterStorage& b) {
                     return std::make_pair(a.block, !a.decay) < std::make_pair(b.block, !b.decay);
                   });
  int64_t offset = 0;
  for (size_t i = 0; i < storages.size(); ++i) {
    ParameterStorage& storage = storages[i];
    CHECK(storage.used) << storage.parameters.front().name << " is declared and never used";
    storage.flat.offset = offset;
    offset += (storage.flat.elements + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
    program.values[storage.weight.id].storage = int(i);
    if (storage.gradient.valid()) program.values[storage.gradient.id].storage = int(i);
  }
  program.flat_elements = offset;
}

void RecordInitialization(Recorder& recorder) {
  const Program& program = recorder.program();
  const FlatRange all{.elements = program.flat_elements};
  for (const ParameterBox& box : program.Parameters()) ops::InitializeBox(recorder, box);
  if (program.training) {
    ops::FillFlat(recorder, FlatBuffer::kFirstMoment, all, 0);
    ops::FillFlat(recorder, FlatBuffer::kSecondMoment, all, 0);
  }
  if (program.precision.compute != program.precision.master) ops::CastToCompute(recorder, all);
}

void RecordOptimizer(Recorder& recorder, const AdamWOptions& options) {
  const Program& program = recorder.program();
  ops::WaitForCommunication(recorder);
  ops::SumSquares(recorder, {.elements = program.flat_elements});
  ops::Clip(recorder);
  const std::vector<ParameterStorage>& storages = program.storages;
  for (size_t i = 0; i < storages.size();) {
    const bool decay = storages[i].decay;
    const int64_t begin = storages[i].flat.offset;
    while (i < storages.size() && storages[i].decay == decay) ++i;
    const int64_t end = i < storages.size() ? storages[i].flat.offset : program.flat_elements;
    ops::AdamW(recorder, {.flat = {.offset = begin, .elements = end - begin},
                          .beta1 = options.beta1,
                          .beta2 = options.beta2,
                          .epsilon = options.epsilon,
                          .weight_decay = decay ? options.weight_decay : 0,
                          .writes_compute = program.precision.compute != program.precision.master});
  }
}

}  // namespace trainyard
