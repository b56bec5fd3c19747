// Masters that are split into weights and remainders, where gradients lie while they are whole.
#include "kernels/optimizer/split_master.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class SplitMasterOp final : public Op {
 public:
  SplitMasterOp(List list, const FlatRange& shard, const FlatRange& own)
      : joins_(list == List::kJoin), shard_(shard), own_(own) {}
  absl::string_view name() const override { return joins_ ? "join_master" : "split_master"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("flat=", own_.offset, "+", own_.elements, " shard=", shard_.offset);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    const Tensor weight = binder.flat(FlatBuffer::kCompute, own_);
    const Tensor remainder = binder.flat(FlatBuffer::kRemainder, shard_);
    const Tensor master = binder.flat(FlatBuffer::kGradient, own_);
    return joins_ ? binder.Kernel(
                        JoinMasterArgs{.weight = weight, .remainder = remainder, .master = master})
                  : binder.Kernel(SplitMasterArgs{
                        .master = master, .weight = weight, .remainder = remainder});
  }

 private:
  bool joins_;
  FlatRange shard_, own_;
};

}  // namespace

void SplitMasters(Recorder& recorder, const FlatRange& shard, const FlatRange& own) {
  recorder.EmitEffect(std::make_shared<SplitMasterOp>(List::kPrepare, shard, own), List::kPrepare);
}

void JoinMasters(Recorder& recorder, const FlatRange& shard, const FlatRange& own) {
  recorder.EmitEffect(std::make_shared<SplitMasterOp>(List::kJoin, shard, own), List::kJoin);
}

}  // namespace trainyard::ops
