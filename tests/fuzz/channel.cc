// What a trainer and its daemon send each other: the lines of a socket, and what the daemon makes
// of a step and a checkpoint for the controller.

#include <sys/socket.h>

#include "common/check.h"
#include "common/file_descriptor.h"
#include "tests/fuzz/input.h"
#include "worker/channel/line_socket.h"
#include "worker/channel/messages.h"
#include "worker/service/convert.h"

namespace trainyard {
namespace {

void CheckReport(const Outgoing& outgoing) {
  const v1::ConnectRequest sent = ToProto(outgoing);
  // The receiver refuses a message with a text that is not UTF-8.
  v1::ConnectRequest received;
  CHECK(received.ParseFromString(sent.SerializeAsString()));
  if (sent.has_step()) {
    const auto& time = sent.step().record().finish_time();
    CHECK(time.nanos() >= 0 && time.nanos() < 1'000'000'000) << time.nanos();
  }
}

void CheckLine(const std::string& line) {
  const auto read = channel::Decode(line);
  if (!read.ok()) return fuzz::CheckRefusal(read.status());
  const std::string printed = channel::Encode(*read);
  // Bytes have several spellings in base64, and a stop of any mode is taken for the one there is.
  const bool one_spelling = !std::holds_alternative<channel::Unknown>(read->message) &&
                            !std::holds_alternative<channel::Set>(read->message) &&
                            !std::holds_alternative<channel::Value>(read->message) &&
                            !std::holds_alternative<channel::Stop>(read->message);
  if (one_spelling) CHECK(fuzz::JsonAgrees(printed, line)) << printed;
  const auto again = channel::Decode(printed);
  CHECK(again.ok()) << printed << again.status().ToString();
  CHECK(channel::Encode(*again) == printed) << printed;

  const RankId id = {"j-1", 1, 0};
  if (const auto* step = std::get_if<channel::Step>(&read->message)) {
    CheckReport({1, Report(StepReport{id, *step})});
  } else if (const auto* saved = std::get_if<channel::Checkpoint>(&read->message)) {
    CheckReport({1, Report(CheckpointReport{id, *saved, absl::UnixEpoch()})});
  } else if (const auto* ready = std::get_if<channel::Ready>(&read->message)) {
    CheckReport({1, Report(RankStatus{id, {}, 0, RankState::kReady, *ready})});
  } else if (const auto* set = std::get_if<channel::Set>(&read->message)) {
    CheckReport({1, Notice(RendezvousSet{{id.job_id, id.epoch, set->key, set->value}})});
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int ends[2];
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  channel::LineSocket receiver{FileDescriptor(ends[0])};
  std::vector<std::string> lines;
  absl::Status status;
  {
    const FileDescriptor sender(ends[1]);
    for (fuzz::Input input(data, size); status.ok();) {
      const absl::string_view part = input.Bytes(60'000);
      if (part.empty()) break;
      CHECK(::send(sender.get(), part.data(), part.size(), 0) == ssize_t(part.size()));
      status = receiver.Read(lines);
    }
  }
  if (!status.ok()) CHECK(absl::IsResourceExhausted(status)) << status.ToString();
  for (const std::string& line : lines) CheckLine(line);
  return 0;
}

}  // namespace trainyard
