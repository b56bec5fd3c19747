// Tensors of the host through a group that carries a device's: the reverse of staged.h, so that
// tests of the host's groups hold for those of a device.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/collective/world.h"
#include "kernels/device/backend.h"

namespace trainyard::testing {

// A tensor's elements in the device's memory.
class DeviceCopy {
 public:
  DeviceCopy(const Backend& backend, const Exec& exec, const ConstTensor& host)
      : buffer_(*backend.Allocate(host.bytes() + 1)),
        tensor_{{buffer_.data(), host.dtype, host.shape}} {
    if (host.bytes() > 0) backend.CopyToDevice(exec, tensor_.data, host.data, host.bytes());
  }
  const Tensor& tensor() const { return tensor_; }
  // The part of it that `part` is of what it is a copy of.
  Tensor Part(const ConstTensor& part, const ConstTensor& whole) const {
    const auto offset =
        static_cast<const std::byte*>(part.data) - static_cast<const std::byte*>(whole.data);
    return Tensor{{static_cast<std::byte*>(tensor_.data) + offset, part.dtype, part.shape}};
  }

 private:
  Buffer buffer_;
  Tensor tensor_;
};

// Every pair of the group that its rank is part of, for all uses.
inline Connections EveryPair(const Collective& group) {
  Connections every;
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    every.messages.insert({{group.rank(), peer}, {peer, group.rank()}});
  }
  every.exchanges = every.messages;
  return every;
}

class CarriedCollective final : public Collective {
 public:
  CarriedCollective(std::unique_ptr<Collective> device, const Backend& backend)
      : Collective(device->name(), device->members(), device->rank()),
        backend_(backend),
        exec_(backend.NewExec(1)),
        device_(std::move(device)) {
    device_->Follow(backend_, exec_);
  }
  void Abort() override { device_->Abort(); }

 private:
  DeviceCopy ToDevice(const ConstTensor& host) { return DeviceCopy(backend_, exec_, host); }
  void ToHost(const Tensor& host, const ConstTensor& device) {
    if (host.bytes() > 0) backend_.CopyToHost(exec_, host.data, device.data, host.bytes());
    device_->Check();
  }
  template <typename F>
  void InPlace(const Tensor& data, F&& operation) {
    const DeviceCopy copy = ToDevice(data);
    operation(copy.tensor());
    ToHost(data, copy.tensor());
  }
  static bool IsIn(const ConstTensor& part, const ConstTensor& whole) {
    const auto *const at = static_cast<const std::byte*>(part.data),
                      *const begin = static_cast<const std::byte*>(whole.data);
    return at >= begin && at < begin + whole.bytes();
  }

  void DoAllReduceSum(Tensor data) override {
    InPlace(data, [&](const Tensor& there) { device_->AllReduceSum(there); });
  }
  void DoAllReduceMax(Tensor data) override {
    InPlace(data, [&](const Tensor& there) { device_->AllReduceMax(there); });
  }
  void DoBroadcast(Tensor data, int root) override {
    InPlace(data, [&](const Tensor& there) { device_->Broadcast(there, root); });
  }
  void DoBarrier() override { device_->Barrier(); }
  void DoAllGather(ConstTensor mine, Tensor all) override {
    const DeviceCopy whole = ToDevice(all), own = ToDevice(mine);
    device_->AllGather(IsIn(mine, all) ? whole.Part(mine, all) : own.tensor(), whole.tensor());
    ToHost(all, whole.tensor());
  }
  void DoReduceScatterSum(ConstTensor all, Tensor mine) override {
    const DeviceCopy whole = ToDevice(all), own = ToDevice(mine);
    if (!IsIn(mine, all)) {
      device_->ReduceScatterSum(whole.tensor(), own.tensor());
      return ToHost(mine, own.tensor());
    }
    device_->ReduceScatterSum(whole.tensor(), whole.Part(mine, all));
    ToHost(Tensor{{const_cast<void*>(all.data), all.dtype, all.shape}}, whole.tensor());
  }
  void DoAllToAll(ConstTensor send, std::span<const int64_t> send_rows, Tensor receive,
                  std::span<const int64_t> receive_rows) override {
    const DeviceCopy from = ToDevice(send), to = ToDevice(receive);
    device_->AllToAll(from.tensor(), send_rows, to.tensor(), receive_rows);
    ToHost(receive, to.tensor());
  }

  void DoPostSend(ConstTensor data, Message to) override {
    const auto copy = sent_.try_emplace({to.peer, to.n}, ToDevice(data)).first;
    device_->PostSend(copy->second.tensor(), to.peer);
  }
  void DoWaitSend(Message to) override {
    device_->WaitSend(to);
    backend_.Synchronize(exec_);
    device_->Check();
    sent_.erase({to.peer, to.n});
  }
  void DoPostReceive(Tensor data, Message from) override {
    const auto copy = expected_.try_emplace({from.peer, from.n}, ToDevice(data)).first;
    device_->PostReceive(copy->second.tensor(), from.peer);
  }
  void DoReceive(Tensor data, Message from) override {
    device_->WaitReceive(from);
    ToHost(data, expected_.extract({from.peer, from.n}).mapped().tensor());
  }
  void DoSendReceive(ConstTensor send, Message to, Tensor receive, Message from) override {
    const DeviceCopy out = ToDevice(send), in = ToDevice(receive);
    device_->SendReceive(out.tensor(), to.peer, in.tensor(), from.peer);
    ToHost(receive, in.tensor());
  }

  const Backend& backend_;
  Exec exec_;
  std::map<std::pair<int, int64_t>, DeviceCopy> sent_, expected_;  // By peer and number.
  const std::unique_ptr<Collective> device_;
};

class CarriedWorld final : public CollectiveWorld {
 public:
  CarriedWorld(std::unique_ptr<CollectiveWorld> device, const Backend& backend)
      : device_(std::move(device)), backend_(backend) {}
  int rank() const override { return device_->rank(); }
  int size() const override { return device_->size(); }
  void Abort() override { device_->Abort(); }

 private:
  absl::StatusOr<std::unique_ptr<Collective>> MakeGroup(const std::string& name,
                                                        const std::vector<int>& members) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Collective> group, device_->Group(name, members));
    RETURN_IF_ERROR(group->Connect(EveryPair(*group)));
    return std::make_unique<CarriedCollective>(std::move(group), backend_);
  }

  const std::unique_ptr<CollectiveWorld> device_;
  const Backend& backend_;
};

}  // namespace trainyard::testing
