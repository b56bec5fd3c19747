// What ran when on one rank: for traces, and for what a step spends where.

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

// Each is written by one thread.
enum class Track : uint8_t {
  kSteps,
  kActions,        // Micro-batches forward and backward, the optimizer: what the ops belong to.
  kCompute,        // Ops, and waits for the other stream.
  kCommunication,  // Ops of the communication stream.
};
inline constexpr size_t kTracks = 4;
const char* Name(Track track);

struct Span {
  absl::string_view name = {};   // Of the op or action; outlives the timeline, as does the next.
  absl::string_view label = {};  // The part of the model.
  int block = -1;                // -1: of none.
  int chunk = -1;
  int64_t index = -1;  // Of an action, the micro-batch; of an op, the slot.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // On the steady clock.
};

// What a profiler shows a span as: "step 12", "forward 3", "matmul attention".
std::string RangeName(Track track, const Span& span);

// Spans of a track follow one another. They are when the device was at it, however long before it
// was told to.
class Timeline {
 public:
  // What is noted from now on, until Detach, runs on these, which must live so long: the track of
  // communication on the second, null where there is none, all others on the first.
  void Attach(const Backend& backend, const Exec& compute, const Exec* communication);
  // Waits until the device has come so far; only then are its spans there.
  void Detach() noexcept;

  void Add(Track track, const Span& span) { tracks_[size_t(track)].push_back(span); }
  const std::vector<Span>& spans(Track track) const { return tracks_[size_t(track)]; }

  // A span while it lasts, for a profiler (Backend::BeginRange) of what the timeline is attached
  // to. Ops of a block that follow one another on the compute track lie in a range "block 5" of
  // theirs, which ends with their action.
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

  // Runs `body`, and adds how long that took where there is a timeline.
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
  // Ends the range of another block, and begins this one's; -1: none.
  void EnterBlock(int block) noexcept;

  std::array<std::vector<Span>, kTracks> tracks_;
  const Backend* backend_ = nullptr;  // Of what it is attached to, as the next.
  const Exec* compute_ = nullptr;
  const Exec* communication_ = nullptr;
  std::unique_ptr<Event> origin_;  // Was at origin_ns_.
  int64_t origin_ns_ = 0;
  std::array<std::vector<OnDevice>, kTracks> on_device_;
  int open_block_ = -1;  // Whose range it is on the compute track.
};

}  // namespace trainyard
