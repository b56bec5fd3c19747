#include "models/program/timeline.h"

#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"

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

std::string RangeName(Track track, const Span& span) {
  std::string name(span.name);
  switch (track) {
    case Track::kSteps:
    case Track::kActions:
      if (span.index >= 0) absl::StrAppend(&name, " ", span.index);
      if (span.chunk > 0) absl::StrAppend(&name, " chunk ", span.chunk);
      break;
    case Track::kCommunication:
    case Track::kCompute:
      absl::StrAppend(&name, span.label.empty() ? "" : " ", span.label);
      if (track == Track::kCommunication && span.block >= 0) {
        absl::StrAppend(&name, " block ", span.block);
      }
  }
  return name;
}

Timeline::Range::Range(Timeline& timeline, Track track, const Span& span)
    : timeline_(timeline), backend_(timeline.backend_), track_(track) {
  if (backend_ == nullptr) return;
  if (track == Track::kCompute) timeline.EnterBlock(span.block);
  backend_->BeginRange(RangeName(track, span).c_str());
}

Timeline::Range::~Range() {
  if (backend_ == nullptr) return;
  if (track_ == Track::kActions) timeline_.EnterBlock(-1);
  backend_->EndRange();
}

void Timeline::EnterBlock(int block) noexcept {
  if (block == open_block_) return;
  if (open_block_ >= 0) backend_->EndRange();
  open_block_ = block;
  if (block >= 0) backend_->BeginRange(absl::StrCat("block ", block).c_str());
}

void Timeline::Attach(const Backend& backend, const Exec& compute, const Exec* communication) {
  backend_ = &backend;
  compute_ = &compute;
  communication_ = communication;
  origin_ = Record(Track::kCompute);
  backend.Synchronize(compute);
  origin_ns_ = Now();
}

void Timeline::Detach() noexcept {
  EnterBlock(-1);
  const auto when = [this](const Event& event) {
    return origin_ns_ + int64_t(1e9 * event.SecondsSince(*origin_));
  };
  for (size_t track = 0; track < kTracks; ++track) {
    for (OnDevice& noted : on_device_[track]) {
      if (std::isnan(noted.end->SecondsSince(*origin_))) continue;  // The device has failed.
      noted.span.begin_ns = when(*noted.begin);
      noted.span.end_ns = when(*noted.end);
      Add(Track(track), noted.span);
    }
    on_device_[track].clear();
  }
  backend_ = nullptr;
}

std::unique_ptr<Event> Timeline::Record(Track track) const {
  std::unique_ptr<Event> event = backend_->NewEvent();
  event->Record(track == Track::kCommunication ? *communication_ : *compute_);
  return event;
}

int64_t Timeline::Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace trainyard
