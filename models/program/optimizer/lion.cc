// Lion: the sign of a momentum, with weight decay as AdamW's. kernels/optimizer/lion.h has the
// formula.

#include "kernels/optimizer/lion.h"

#include "models/program/binder.h"
#include "models/program/optimizer/declared_options.h"
#include "models/program/optimizer/optimizer.h"

namespace trainyard {
namespace {

Call BindLion(const Binder& binder, const UpdateRange& range) {
  LionArgs args{.master = binder.flat(FlatBuffer::kMaster, range.shard),
                .m = binder.flat(FlatBuffer::kFirstMoment, range.shard),
                .grad = binder.flat(FlatBuffer::kGradient, range.flat),
                .options = {.beta1 = range.options["beta1"],
                            .beta2 = range.options["beta2"],
                            .weight_decay = range.options["weight_decay"]},
                .state = binder.step_state()};
  if (range.writes_compute) args.compute = binder.flat(FlatBuffer::kCompute, range.flat);
  return binder.Kernel(args);
}

}  // namespace

const Optimizer& LionOptimizer() {
  static const Optimizer* const lion = new Optimizer{.name = "lion",
                                                     .options = DeclaredOptions("lion"),
                                                     .states = {FlatBuffer::kFirstMoment},
                                                     .bind = BindLion};
  return *lion;
}

}  // namespace trainyard
