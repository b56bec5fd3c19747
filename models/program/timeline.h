// Records when the work of one rank ran: for traces, and to find where a step spends its time.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/device/backend.h"

namespace trainyard {

// Each track is written by one thread.
enum class Track : uint8_t {
  kSteps,
  kActions,        // Micro-batches forward and backward, and the optimizer; ops belong to these.
  kCompute,        // Ops, and waits for the communication stream.
  kCommunication,  // Ops of the communication stream.
};
inline constexpr size_t kTracks = 4;
const char* Name(Track track);

struct Span {
  absl::string_view name = {};   // The op or action. Must outlive the timeline, as must `label`.
  absl::string_view label = {};  // The part of the model.
  int block = -1;                // -1: no block.
  int chunk = -1;
  int64_t index = -1;  // The micro-batch of an action, or the slot of an op.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // On the steady clock.
};

// The text that a profiler shows for a span: "step 12", "forward 3", "matmul attention".
std::string RangeName(Track track, const Span& span);

// The spans of a track follow one another. Their times are those at which the device did the work,
// not those at which the host launched it.
class Timeline {
 public:
  // Attaches the timeline to streams, until Detach. `communication` runs the track of
  // communication, and may be null if there is none; `compute` runs all other tracks. Both must
  // live until Detach.
  void Attach(const Backend& backend, const Exec& compute, const Exec* communication);
  // Waits until the device has finished the recorded work. Its spans exist only after that.
  void Detach() noexcept;

  void Add(Track track, const Span& span) { tracks_[size_t(track)].push_back(span); }
  const std::vector<Span>& spans(Track track) const { return tracks_[size_t(track)]; }

  // Shows a span in a profiler (Backend::BeginRange) while the object lives, if the timeline is
  // attached. Consecutive ops of a block on the compute track lie in a common range "block 5",
  // which ends with their action at the latest.
  class Range {
   public:
    Range(Timeline& timeline, Track track, const Span& span);
    ~Range();
    Range(const Range&) = delete;

   private:
    Timeline& timeline_;
    const Backend* const backend_;
    const Track track_;
  };

  // Runs `body`, and adds its span if `timeline` is not null.
  template <typename Body>
  static void Note(Timeline* timeline, Track track, Span span, const Body& body) {
    if (timeline == nullptr) return body();
    const Range range(*timeline, track, span);
    if (timeline->backend_ != nullptr) {
      std::unique_ptr<Event> begin = timeline->Record(track);
      body();
      timeline->on_device_[size_t(track)].push_back(
          {span, std::move(begin), timeline->Record(track)});
      return;
    }
    span.begin_ns = Now();
    body();
    span.end_ns = Now();
    timeline->Add(track, span);
  }

  static int64_t Now();  // Nanoseconds of the steady clock.

 private:
  struct OnDevice {
    Span span;
    std::unique_ptr<Event> begin, end;
  };
  std::unique_ptr<Event> Record(Track track) const;
  // Ends the range of the current block and begins that of `block`; -1: begins none.
  void EnterBlock(int block) noexcept;

  std::array<std::vector<Span>, kTracks> tracks_;
  const Backend* backend_ = nullptr;  // The backend it is attached to. Null: not attached.
  const Exec* compute_ = nullptr;
  const Exec* communication_ = nullptr;
  std::unique_ptr<Event> origin_;  // Recorded at origin_ns_.
  int64_t origin_ns_ = 0;
  std::array<std::vector<OnDevice>, kTracks> on_device_;
  int open_block_ = -1;  // The block whose range is open on the compute track; -1: none.
};

}  // namespace trainyard
