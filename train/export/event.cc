#include "train/export/event.h"

#include <bit>

namespace trainyard {
namespace {

constexpr absl::string_view kFileVersion = "brain.Event:2";

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  out += char(value);
}

void AppendFixed(std::string& out, uint64_t value, int bytes) {  // Little-endian.
  for (int i = 0; i < bytes; ++i) out += char(value >> 8 * i);
}

void AppendTag(std::string& out, uint64_t field, WireType type) {
  AppendVarint(out, field << 3 | type);
}

void AppendNumber(std::string& out, uint64_t field, uint64_t value) {
  AppendTag(out, field, kVarint);
  AppendVarint(out, value);
}

void AppendBytes(std::string& out, uint64_t field, absl::string_view bytes) {
  AppendTag(out, field, kBytes);
  AppendVarint(out, bytes.size());
  out.append(bytes.data(), bytes.size());
}

std::string Head(double wall_time, int64_t step) {
  std::string out;
  AppendTag(out, 1, kFixed64);
  AppendFixed(out, std::bit_cast<uint64_t>(wall_time), 8);
  if (step != 0) AppendNumber(out, 2, uint64_t(step));
  return out;
}

// Takes fields off the front of a message.
class FieldReader {
 public:
  explicit FieldReader(absl::string_view message) : left_(message) {}

  bool AtEnd() const { return left_.empty(); }
  // Takes the next field. Returns false if the message is broken or has a type of field that
  // event.proto does not have.
  bool Next() {
    const std::optional<uint64_t> tag = Varint();
    if (!tag) return false;
    field = *tag >> 3;
    switch (*tag & 7) {
      case kVarint: {
        const std::optional<uint64_t> value = Varint();
        number = value.value_or(0);
        return value.has_value();
      }
      case kFixed64:
        return Take(8);
      case kBytes: {
        const std::optional<uint64_t> size = Varint();
        return size && Take(*size);
      }
      case kFixed32:
        return Take(4);
      default:
        return false;
    }
  }

  // The field that Next has taken.
  uint64_t field = 0;
  uint64_t number = 0;      // The value of a varint.
  absl::string_view bytes;  // The value of any other type.

 private:
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const uint8_t byte = uint8_t(left_.front());
      left_.remove_prefix(1);
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  bool Take(uint64_t size) {
    if (size > left_.size()) return false;
    bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return true;
  }

  absl::string_view left_;
};

bool IsStart(absl::string_view session_log) {
  FieldReader fields(session_log);
  while (!fields.AtEnd()) {
    if (!fields.Next()) return false;
    if (fields.field == 1 && fields.number == 1) return true;
  }
  return false;
}

void AppendScalar(std::string& summary, const Scalar& scalar) {
  std::string value;
  AppendBytes(value, 1, scalar.tag);
  AppendTag(value, 2, kFixed32);
  AppendFixed(value, std::bit_cast<uint32_t>(float(scalar.value)), 4);
  AppendBytes(summary, 1, value);
}

void AppendText(std::string& summary, const MarkdownText& text) {
  constexpr uint64_t kString = 7;  // DT_STRING
  std::string plugin, metadata, dim, shape, tensor, value;
  AppendBytes(plugin, 1, "text");
  AppendBytes(metadata, 1, plugin);
  AppendNumber(dim, 1, 1);
  AppendBytes(shape, 2, dim);
  AppendNumber(tensor, 1, kString);
  AppendBytes(tensor, 2, shape);
  AppendBytes(tensor, 8, text.markdown);
  AppendBytes(value, 1, text.tag);
  AppendBytes(value, 8, tensor);
  AppendBytes(value, 9, metadata);
  AppendBytes(summary, 1, value);
}

}  // namespace

SummaryEvent PointsEvent(double wall_time, int64_t step, const std::vector<Scalar>& scalars,
                         const std::vector<MarkdownText>& texts) {
  std::string summary;
  for (const Scalar& scalar : scalars) AppendScalar(summary, scalar);
  for (const MarkdownText& text : texts) AppendText(summary, text);
  SummaryEvent event{wall_time, step, Head(wall_time, step)};
  AppendBytes(event.bytes, 5, summary);
  return event;
}

SummaryEvent VersionEvent(double wall_time) {
  SummaryEvent event{wall_time, 0, Head(wall_time, 0)};
  AppendBytes(event.bytes, 3, kFileVersion);
  return event;
}

SummaryEvent RestartEvent(double wall_time, int64_t step) {
  std::string session_log;
  AppendNumber(session_log, 1, 1);
  SummaryEvent event{wall_time, step, Head(wall_time, step)};
  AppendBytes(event.bytes, 7, session_log);
  return event;
}

std::optional<EventHead> ReadEventHead(absl::string_view bytes) {
  EventHead head;
  bool known = false;
  FieldReader fields(bytes);
  while (!fields.AtEnd()) {
    if (!fields.Next()) return std::nullopt;
    if (fields.field == 2) head.step = int64_t(fields.number);
    known |= fields.field == 5;
    if (fields.field == 3) {
      if (fields.bytes != kFileVersion) return std::nullopt;
      head.kind = EventKind::kVersion, known = true;
    }
    if (fields.field == 7) {
      if (!IsStart(fields.bytes)) return std::nullopt;
      head.kind = EventKind::kRestart, known = true;
    }
  }
  return known ? std::optional(head) : std::nullopt;
}

}  // namespace trainyard
