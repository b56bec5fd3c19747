// The controller's end of one worker's stream: what WorkerStream and StreamLink are to gRPC.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "controller/workers/coordinator.h"
#include "tests/simulation/controller_process.h"

namespace trainyard::simulation {

class ControllerEnd final : public controller::WorkerLink,
                            public std::enable_shared_from_this<ControllerEnd> {
 public:
  ControllerEnd(ControllerProcess& controller, std::shared_ptr<DownPipe> down)
      : controller_(controller), down_(std::move(down)) {}

  void Send(controller::Order order) override;
  void Close(absl::Status why) override;
  bool holding() const override { return !closed_ && up_->held(); }

  void SetUp(std::shared_ptr<UpPipe> up) { up_ = std::move(up); }
  void Receive(const std::optional<v1::ConnectRequest>& request);
  void Die();  // With its process: the worker's side is closed, and nothing is heard any more.

 private:
  static constexpr int kWindow = 64;  // StreamLink::kWindow.
  absl::Status Handle(const v1::ConnectRequest& request);
  controller::Coordinator::Done Durable(const v1::ConnectRequest& request);

  ControllerProcess& controller_;
  const std::shared_ptr<DownPipe> down_;
  std::shared_ptr<UpPipe> up_;
  std::optional<controller::Session> session_;
  int storing_ = 0;
  bool closed_ = false;
};

}  // namespace trainyard::simulation
