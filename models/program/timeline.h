// What ran when on one rank: for traces, and for what a step spends where.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

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

// Spans of a track follow one another.
class Timeline {
 public:
  void Add(Track track, const Span& span) { tracks_[size_t(track)].push_back(span); }
  const std::vector<Span>& spans(Track track) const { return tracks_[size_t(track)]; }

  // Runs `body`, and adds how long that took where there is a timeline.
  template <typename Body>
  static void Note(Timeline* timeline, Track track, Span span, const Body& body) {
    if (timeline == nullptr) return body();
    span.begin_ns = Now();
    body();
    span.end_ns = Now();
    timeline->Add(track, span);
  }

  static int64_t Now();  // Nanoseconds of the steady clock.

 private:
  std::array<std::vector<Span>, kTracks> tracks_;
};

}  // namespace trainyard
