#include "models/program/timeline.h"

#include <chrono>
#include <cmath>

namespace trainyard {

const char* Name(Track track) {
  switch (track) {
    case Track::kSteps:
      return "steps";
    case Track::kActions:
      return "actions";
    case Track::kCompute:
      return "compute";
    case Track::kCommunication:
      return "communication";
  }
  return "";
}

void Timeline::Attach(const Backend& backend, const Exec& exec) {
  backend_ = &backend;
  exec_ = &exec;
  origin_ = Record();
  backend.Synchronize(exec);
  origin_ns_ = Now();
}

void Timeline::Detach() noexcept {
  const auto when = [this](const Event& event) {
    return origin_ns_ + int64_t(1e9 * event.SecondsSince(*origin_));
  };
  for (OnDevice& noted : on_device_) {
    if (std::isnan(noted.end->SecondsSince(*origin_))) continue;  // The device has failed.
    noted.span.begin_ns = when(*noted.begin);
    noted.span.end_ns = when(*noted.end);
    Add(noted.track, noted.span);
  }
  on_device_.clear();
  backend_ = nullptr;
}

std::unique_ptr<Event> Timeline::Record() const {
  std::unique_ptr<Event> event = backend_->NewEvent();
  event->Record(*exec_);
  return event;
}

int64_t Timeline::Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace trainyard
