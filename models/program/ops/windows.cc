// ZeRO FULL: gathers weights block by block, and adds gradients up in shards.
#include "absl/strings/str_cat.h"
#include "kernels/elementwise/add.h"
#include "kernels/elementwise/cast.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

int64_t BytesOf(const Program& program, const Bucket& bucket) {
  return bucket.flat.elements * int64_t(SizeOf(program.precision.weight));
}
Tensor OwnPart(const Binder& binder, const Bucket& bucket) {
  // The master weights are also the compute copy if the formats are equal.
  return bucket.copied ? binder.flat(FlatBuffer::kCompute, bucket.own)
                       : binder.flat(FlatBuffer::kMaster, bucket.shard);
}
Tensor Whole(const Binder& binder, const Bucket& bucket) {
  return binder.flat(FlatBuffer::kComputeWindow, bucket.flat);
}
std::string TextOf(const Bucket& bucket) {
  return absl::StrCat("flat=", bucket.flat.offset, "+", bucket.flat.elements);
}

int64_t BytesOf(const Program&, const FrozenBucket& bucket) { return bucket.flat.elements; }
Tensor OwnPart(const Binder& binder, const FrozenBucket& bucket) {
  return binder.frozen(FlatBuffer::kFrozen, bucket.own, bucket.dtype);
}
Tensor Whole(const Binder& binder, const FrozenBucket& bucket) {
  return binder.frozen(FlatBuffer::kFrozenWindow, bucket.flat, bucket.dtype);
}
std::string TextOf(const FrozenBucket& bucket) {
  return absl::StrCat("flat=", bucket.flat.offset, "+", bucket.flat.elements,
                      " frozen=", Name(bucket.dtype));
}

// Gathers a bucket's weights into the window from the ranks that own them. `AnyBucket` is Bucket or
// FrozenBucket.
template <typename AnyBucket>
class GatherWindowOp final : public Op {
 public:
  explicit GatherWindowOp(const AnyBucket& bucket) : bucket_(bucket) {}
  absl::string_view name() const override { return "gather_window"; }
  AxisSet group() const override { return bucket_.zero_axes; }
  bool has_effect() const override { return true; }
  std::string attributes() const override { return TextOf(bucket_); }
  Cost CostOf(const Program& program, const Instance&) const override {
    return {.bytes = double(BytesOf(program, bucket_))};
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    return {CallsOf(CollectiveOp::kAllGather, 1, BytesOf(program, bucket_),
                    program.mesh.size(bucket_.zero_axes))};
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return [&collective = binder.collective(bucket_.zero_axes), own = OwnPart(binder, bucket_),
            all = Whole(binder, bucket_)](Exec&) { collective.AllGather(own, all); };
  }

 private:
  AnyBucket bucket_;
};

template <typename AnyBucket>
Instance Gather(const AnyBucket& bucket, int block) {
  return {.op = std::make_shared<GatherWindowOp<AnyBucket>>(bucket),
          .list = List::kGather,
          .block = block,
          .stream = Stream::kCommunication,
          .label = "grad_sync"};
}

class FetchOp final : public Op {
 public:
  FetchOp(int block, int ahead) : block_(block), ahead_(ahead) {}
  absl::string_view name() const override { return "fetch"; }
  bool is_capturable() const override { return false; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("block=", block_, " ahead=", ahead_);
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return binder.FetchBlock(block_, ahead_);
  }

 private:
  int block_, ahead_;
};

class ForgetOp final : public Op {
 public:
  absl::string_view name() const override { return "forget"; }
  bool is_capturable() const override { return false; }
  bool has_effect() const override { return true; }
  Call Bind(const Binder& binder, const Instance&) const override { return binder.ForgetBlocks(); }
};

class AddToShardOp final : public Op {
 public:
  explicit AddToShardOp(std::vector<FlatRange> ranges) : ranges_(std::move(ranges)) {}
  absl::string_view name() const override { return "add_to_shard"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override { return absl::StrCat("ranges=", ranges_.size()); }
  Call Bind(const Binder& binder, const Instance&) const override {
    std::vector<Call> calls;
    for (const FlatRange& range : ranges_) {
      const Tensor mine = binder.flat(FlatBuffer::kGradientWindow, range);
      const Tensor sum = binder.flat(FlatBuffer::kGradient, range);
      calls.push_back(binder.write_sums() == Write::kAdd
                          ? binder.Kernel(AddArgs{.a = sum, .b = mine, .y = sum})
                          : binder.Kernel(CastArgs{.x = mine, .y = sum}));
    }
    return [calls = std::move(calls)](Exec& exec) {
      for (const Call& call : calls) call(exec);
    };
  }

 private:
  std::vector<FlatRange> ranges_;
};

}  // namespace

Instance GatherWindow(const Bucket& bucket) { return Gather(bucket, bucket.first_block); }

Instance GatherWindow(const FrozenBucket& bucket) { return Gather(bucket, bucket.block); }

Instance Fetch(List list, int block, int ahead) {
  return {.op = std::make_shared<FetchOp>(block, ahead),
          .list = list,
          .block = block,
          .label = "grad_sync"};
}

Instance AddToShard(List list, std::vector<FlatRange> ranges) {
  return {.op = std::make_shared<AddToShardOp>(std::move(ranges)),
          .list = list,
          .stream = Stream::kCommunication,
          .label = "grad_sync"};
}

void ForgetBlocks(Recorder& recorder, List list) {
  recorder.EmitEffect(std::make_shared<ForgetOp>(), list);
}

}  // namespace trainyard::ops
