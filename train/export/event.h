// TensorBoard's events: messages of its event.proto and summary.proto in protobuf's wire format.
// Only the fields that Trainyard writes are known here:
//
//   Event     1 wall_time (double)   2 step (int64)   3 file_version   5 summary   7 session_log
//   Summary   1 value (repeated)     SessionLog  1 status (START = 1)
//   Value     1 tag   2 simple_value (float)   8 tensor   9 metadata
//
// Source: tensorboard/compat/proto/{event,summary,tensor}.proto of TensorBoard 2.21.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard {

// One encoded message, with its time and its step.
struct SummaryEvent {
  double wall_time = 0;  // Unix seconds.
  int64_t step = 0;
  std::string bytes;
};

struct Scalar {
  std::string tag;
  double value = 0;  // Stored as f32.
};

struct MarkdownText {
  std::string tag;
  std::string markdown;
};

// An event with the points and the texts of one step, one for each tag.
SummaryEvent PointsEvent(double wall_time, int64_t step, const std::vector<Scalar>& scalars,
                         const std::vector<MarkdownText>& texts = {});
// The first event of every file.
SummaryEvent VersionEvent(double wall_time);
// A restart (SessionLog START): TensorBoard forgets all earlier points of this step and of later
// steps.
SummaryEvent RestartEvent(double wall_time, int64_t step);

enum class EventKind { kPoints, kVersion, kRestart };

struct EventHead {
  EventKind kind = EventKind::kPoints;
  int64_t step = 0;
};

// Reads the kind and the step of a message. Returns nullopt if the message is not an event of the
// kinds above.
std::optional<EventHead> ReadEventHead(absl::string_view bytes);

}  // namespace trainyard
