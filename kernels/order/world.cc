#include "kernels/order/world.h"

#include <map>
#include <utility>

#include "kernels/order/backend.h"

namespace trainyard {
namespace {

class OrderCollective final : public Collective {
 public:
  OrderCollective(std::string name, std::vector<int> members, int rank, Accesses& accesses,
                  const OrderWorld::Answers& answers)
      : Collective(std::move(name), std::move(members), rank),
        accesses_(accesses),
        answers_(answers) {}

  void Abort() override {}

 private:
  // A message under way.
  struct UnderWay {
    Accesses::Line line = -1;
    const void* data = nullptr;
  };
  using Messages = std::map<std::pair<int, int64_t>, UnderWay>;  // By peer and number.

  // Operations work for the stream that the group follows.
  Accesses::Line line() const { return OrderBackend::LineOf(followed()); }
  void Read(const char* op, const ConstTensor& data) const {
    accesses_.Read(line(), op, data.data, data.bytes());
  }
  void Write(const char* op, const Tensor& data) const {
    accesses_.Write(line(), op, data.data, data.bytes());
  }

  void DoAllReduceSum(Tensor data) override { Write("all_reduce", data); }
  void DoAllReduceMax(Tensor data) override { Write("all_reduce", data); }
  void DoBroadcast(Tensor data, int) override { Write("broadcast", data); }
  void DoBarrier() override {}
  void DoAllGather(ConstTensor mine, Tensor all) override {
    Read("all_gather", mine);
    Write("all_gather", all);
  }
  void DoReduceScatterSum(ConstTensor all, Tensor mine) override {
    Read("reduce_scatter", all);
    Write("reduce_scatter", mine);
  }
  void DoAllToAll(ConstTensor send, std::span<const int64_t>, Tensor receive,
                  std::span<const int64_t>) override {
    Read("all_to_all", send);
    Write("all_to_all", receive);
  }
  void DoSendReceive(ConstTensor send, Message, Tensor receive, Message) override {
    Read("send_receive", send);
    Write("send_receive", receive);
  }

  void DoPostSend(ConstTensor data, Message to) override {
    const Accesses::Line message = accesses_.Fork(line());
    accesses_.Read(message, "send", data.data, data.bytes());
    sends_[{to.peer, to.n}] = {message, data.data};
  }
  void DoWaitSend(Message to) override { End(sends_, to); }
  void DoPostReceive(Tensor data, Message from) override {
    const Accesses::Line message = accesses_.Fork(line());
    std::vector<Accesses::Line> answered;
    for (const auto& [key, sent] : sends_) {
      if (answers_(data.data, sent.data)) answered.push_back(sent.line);
    }
    accesses_.Write(message, "receive", data.data, data.bytes(), answered);
    receives_[{from.peer, from.n}] = {message, data.data};
  }
  void DoReceive(Tensor, Message from) override { End(receives_, from); }

  void End(Messages& messages, Message message) {
    const auto ended = messages.extract({message.peer, message.n});
    CHECK(ended) << "message " << message.n << " of rank " << message.peer << " is not under way";
    accesses_.End(ended.mapped().line, line());
  }

  Accesses& accesses_;
  const OrderWorld::Answers& answers_;
  Messages sends_, receives_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> OrderWorld::MakeGroup(const std::string& name,
                                                                  const std::vector<int>& members) {
  return std::make_unique<OrderCollective>(name, members, RankIn(members), accesses_, answers_);
}

}  // namespace trainyard
