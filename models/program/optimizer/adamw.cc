// AdamW: Adam with weight decay that is no part of the gradient. kernels/optimizer/adamw.h has the
// formula.

#include "kernels/optimizer/adamw.h"

#include "kernels/optimizer/compact_adamw.h"
#include "models/program/binder.h"
#include "models/program/optimizer/declared_options.h"
#include "models/program/optimizer/optimizer.h"

namespace trainyard {
namespace {

// Of every optimizer that leaves some parameters to AdamW.
AdamWOptions KernelOptions(const OptimizerOptions& options) {
  return {.beta1 = options["beta1"],
          .beta2 = options["beta2"],
          .eps = options["epsilon"],
          .weight_decay = options["weight_decay"]};
}

Call BindCompact(const Binder& binder, const UpdateRange& range) {
  const PlaceInParameter& place = *range.place;
  CompactAdamWArgs args{.weight = range.writes_compute
                                      ? binder.flat(FlatBuffer::kCompute, range.flat)
                                      : binder.flat(FlatBuffer::kMaster, range.shard),
                        .m = binder.flat(FlatBuffer::kFirstMoment, range.shard),
                        .v = binder.flat(FlatBuffer::kSecondMoment, range.shard),
                        .grad = binder.flat(FlatBuffer::kGradient, range.flat),
                        .options = KernelOptions(range.options),
                        .stream = place.stream,
                        .global_columns = place.global_columns,
                        .first_row = place.first_row,
                        .first_column = place.first_column,
                        .state = binder.step_state()};
  if (range.writes_compute) args.remainder = binder.flat(FlatBuffer::kRemainder, range.shard);
  args.weight.shape = {range.flat.elements / place.columns, place.columns};
  return binder.Kernel(args);
}

Call BindAdamW(const Binder& binder, const UpdateRange& range) {
  if (range.place) return BindCompact(binder, range);
  AdamWArgs args{.master = binder.flat(FlatBuffer::kMaster, range.shard),
                 .m = binder.flat(FlatBuffer::kFirstMoment, range.shard),
                 .v = binder.flat(FlatBuffer::kSecondMoment, range.shard),
                 .grad = binder.flat(FlatBuffer::kGradient, range.flat),
                 .options = KernelOptions(range.options),
                 .state = binder.step_state()};
  if (range.writes_compute) args.compute = binder.flat(FlatBuffer::kCompute, range.flat);
  return binder.Kernel(args);
}

std::vector<OptimizerOption> OptionsOfAdamW() {
  std::vector<OptimizerOption> options = DeclaredOptions("adamw");
  options.push_back({.name = "state",
                     .standard = 0,
                     .legal = {.least = 0, .most = 1},
                     .choices = {"F32", "COMPACT"}});
  return options;
}

}  // namespace

const Optimizer& AdamWOptimizer() {
  static const Optimizer* const adamw =
      new Optimizer{.name = "adamw",
                    .options = OptionsOfAdamW(),
                    .states = {FlatBuffer::kFirstMoment, FlatBuffer::kSecondMoment},
                    .bind = BindAdamW};
  return *adamw;
}

}  // namespace trainyard
