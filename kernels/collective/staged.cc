#include "kernels/collective/staged.h"

#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

// A tensor's elements in the host's memory. Only copies write them.
class HostCopy {
 public:
  explicit HostCopy(const ConstTensor& like)
      : tensor_{{nullptr, like.dtype, like.shape}},
        data_(std::make_unique_for_overwrite<std::byte[]>(like.bytes() + 1)) {
    tensor_.data = data_.get();
  }
  const Tensor& tensor() const { return tensor_; }

 private:
  Tensor tensor_;
  std::unique_ptr<std::byte[]> data_;
};

// The first rows of the tensor, as many as the blocks have.
Tensor Rows(Tensor tensor, std::span<const int64_t> blocks) {
  tensor.shape = tensor.shape.With(0, std::accumulate(blocks.begin(), blocks.end(), int64_t{0}));
  return tensor;
}

class StagedCollective final : public Collective {
 public:
  StagedCollective(std::unique_ptr<Collective> host, const Backend& backend)
      : Collective(host->name(), host->members(), host->rank()),
        host_(std::move(host)),
        backend_(backend) {}

  void Abort() override { host_->Abort(); }

 private:
  HostCopy ToHost(const ConstTensor& data) {
    HostCopy copy(data);
    backend_.CopyToHost(followed(), copy.tensor().data, data.data, data.bytes());
    return copy;
  }
  void ToDevice(const Tensor& data, const HostCopy& copy) {
    backend_.CopyToDevice(followed(), data.data, copy.tensor().data, data.bytes());
  }
  template <typename F>
  void InPlace(const Tensor& data, F&& operation) {
    const HostCopy copy = ToHost(data);
    operation(copy.tensor());
    ToDevice(data, copy);
  }

  void DoAllReduceSum(Tensor data) override {
    InPlace(data, [&](const Tensor& on_host) { host_->AllReduceSum(on_host); });
  }
  void DoAllReduceMax(Tensor data) override {
    InPlace(data, [&](const Tensor& on_host) { host_->AllReduceMax(on_host); });
  }
  void DoBroadcast(Tensor data, int root) override {
    InPlace(data, [&](const Tensor& on_host) { host_->Broadcast(on_host, root); });
  }
  void DoBarrier() override { host_->Barrier(); }
  void DoAllGather(ConstTensor mine, Tensor all) override {
    const HostCopy from = ToHost(mine), to(all);
    host_->AllGather(from.tensor(), to.tensor());
    ToDevice(all, to);
  }
  void DoReduceScatterSum(ConstTensor all, Tensor mine) override {
    const HostCopy from = ToHost(all), to(mine);
    host_->ReduceScatterSum(from.tensor(), to.tensor());
    ToDevice(mine, to);
  }
  void DoAllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                  std::span<const int64_t> receive_rows) override {
    const Tensor received = Rows(receive, receive_rows);
    const HostCopy from = ToHost(send), to(received);
    host_->AllToAll(from.tensor(), send_rows, to.tensor(), receive_rows);
    ToDevice(received, to);
  }

  void DoPostSend(ConstTensor data, Message to) override {
    HostCopy copy = ToHost(data);
    const SendHandle handle = host_->PostSend(copy.tensor(), to.peer);
    CHECK(handle.n == to.n) << "message " << to.n << " is the host's " << handle.n;
    sent_.try_emplace({to.peer, to.n}, std::move(copy));
  }
  void DoWaitSend(Message to) override {
    host_->WaitSend(to);
    sent_.erase({to.peer, to.n});
  }
  void DoPostReceive(Tensor data, Message from) override {
    const auto posted = expected_.try_emplace({from.peer, from.n}, data).first;
    const ReceiveHandle handle = host_->PostReceive(posted->second.tensor(), from.peer);
    CHECK(handle.n == from.n) << "message " << from.n << " is the host's " << handle.n;
  }
  void DoReceive(Tensor data, Message from) override {
    host_->WaitReceive(from);
    ToDevice(data, expected_.extract({from.peer, from.n}).mapped());
  }
  void DoSendReceive(ConstTensor send, Message to, Tensor receive, Message from) override {
    const HostCopy out = ToHost(send), in(receive);
    host_->SendReceive(out.tensor(), to.peer, in.tensor(), from.peer);
    ToDevice(receive, in);
  }

  const std::unique_ptr<Collective> host_;
  const Backend& backend_;
  std::map<std::pair<int, int64_t>, HostCopy> sent_, expected_;  // By peer and number.
};

class StagedWorld final : public CollectiveWorld {
 public:
  StagedWorld(CollectiveWorld& host, const Backend& backend) : host_(host), backend_(backend) {}
  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  void Abort() override { host_.Abort(); }
  absl::StatusOr<std::unique_ptr<Collective>> Everyone() override { return host_.Everyone(); }

 private:
  absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(const std::string& name,
                                                        const std::vector<int>& members) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Collective> group, host_.Group(name, members));
    return std::make_unique<StagedCollective>(std::move(group), backend_);
  }

  CollectiveWorld& host_;
  const Backend& backend_;
};

class DeviceWorld final : public CollectiveWorld {
 public:
  DeviceWorld(CollectiveWorld& host, std::unique_ptr<CollectiveWorld> tensors)
      : host_(host), tensors_(std::move(tensors)) {
    CHECK(tensors_->rank() == host.rank() && tensors_->size() == host.size())
        << "rank " << host.rank() << " of " << host.size() << " has tensors as " << tensors_->rank()
        << " of " << tensors_->size();
  }
  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  void Abort() override {
    host_.Abort();
    tensors_->Abort();
  }
  absl::StatusOr<std::unique_ptr<Collective>> Everyone() override { return host_.Everyone(); }

 private:
  absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(const std::string& name,
                                                        const std::vector<int>& members) override {
    return tensors_->Group(name, members);
  }

  CollectiveWorld& host_;
  const std::unique_ptr<CollectiveWorld> tensors_;
};

}  // namespace

std::unique_ptr<CollectiveWorld> CreateDeviceWorld(CollectiveWorld& host,
                                                   std::unique_ptr<CollectiveWorld> tensors) {
  return std::make_unique<DeviceWorld>(host, std::move(tensors));
}

std::unique_ptr<CollectiveWorld> CreateStagedWorld(CollectiveWorld& host, const Backend& backend) {
  return std::make_unique<StagedWorld>(host, backend);
}

}  // namespace trainyard
