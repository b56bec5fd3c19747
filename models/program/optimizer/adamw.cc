// AdamW: Adam with weight decay that is no part of the gradient. kernels/adamw.h has the formula.

#include "kernels/adamw.h"

#include "models/program/binder.h"
#include "models/program/optimizer/declared_options.h"
#include "models/program/optimizer/optimizer.h"

namespace trainyard {
namespace {

Call BindAdamW(const Binder& binder, const UpdateRange& range) {
  AdamWArgs args{.master = binder.flat(FlatBuffer::kMaster, range.shard),
                 .m = binder.flat(FlatBuffer::kFirstMoment, range.shard),
                 .v = binder.flat(FlatBuffer::kSecondMoment, range.shard),
                 .grad = binder.flat(FlatBuffer::kGradient, range.flat),
                 .beta1 = range.options["beta1"],
                 .beta2 = range.options["beta2"],
                 .eps = range.options["epsilon"],
                 .weight_decay = range.options["weight_decay"],
                 .state = binder.step_state()};
  if (range.writes_compute) args.compute = binder.flat(FlatBuffer::kCompute, range.flat);
  return binder.Kernel(args);
}

}  // namespace

const Optimizer& AdamWOptimizer() {
  static const Optimizer* const adamw =
      new Optimizer{.name = "adamw",
                    .options = DeclaredOptions("adamw"),
                    .states = {FlatBuffer::kFirstMoment, FlatBuffer::kSecondMoment},
                    .bind = BindAdamW};
  return *adamw;
}

}  // namespace trainyard
