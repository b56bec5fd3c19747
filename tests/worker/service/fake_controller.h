// A controller that does what a test tells it: keeps what workers say, acknowledges or not, breaks
// off, goes away and comes back at the same address.

#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trainyard/v1/worker.grpc.pb.h"

namespace trainyard {

// Thread-safe.
class FakeController {
 public:
  FakeController();  // Serves, on a port of its own.
  ~FakeController();

  const std::string& address() const { return address_; }
  void GoAway();    // Every connection breaks, nobody listens.
  void ComeBack();  // At the same address.
  void BreakConnection();

  void set_acknowledge(bool acknowledge);  // From now on; at first it does.
  void set_beat_milliseconds(uint32_t beat);
  void set_admit(bool admit);                    // Whether Register is answered; at first it is.
  void set_refusal(const std::string& message);  // With which each stream ends from now on.
  // To the connected worker. False if there is none.
  bool Send(const v1::ConnectResponse& response);
  bool Acknowledge(uint64_t sequence);
  bool Start(const v1::StartRanks& order);
  bool Stop(const std::string& job_id, uint64_t epoch, v1::StopMode mode);

  // All that was received, over all connections.
  std::vector<v1::ConnectRequest> received() const;
  // Waits until a message fits and returns it; an empty one after a minute.
  v1::ConnectRequest Await(const std::function<bool(const v1::ConnectRequest&)>& fits) const;
  v1::RankStatus AwaitRank(const std::string& job_id, uint64_t epoch, v1::RankState state) const;
  // Waits for this many Register messages and returns the last.
  v1::Register AwaitRegister(size_t count) const;
  size_t Count(const std::function<bool(const v1::ConnectRequest&)>& fits) const;

 private:
  class Service;

  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// An order for the fake trainer: rank 0 on device 0, alone.
v1::StartRanks StartMessage(const std::string& job_id, uint64_t epoch,
                            const std::vector<std::string>& actions);

}  // namespace trainyard
