// What callers and workers send the controller, as far as it is taken in without looking anything
// up. The first line names the message; the rest are its bytes. tests/fuzz/spec_message.cc has the
// largest part of SubmitJob, tests/fuzz/certificates.cc that of Join.

#include <google/protobuf/util/json_util.h>

#include "common/check.h"
#include "common/text.h"
#include "controller/access/joining.h"
#include "controller/jobs/job_codec.h"
#include "controller/jobs/job_id.h"
#include "controller/service/bounds.h"
#include "controller/service/convert_job.h"
#include "controller/service/convert_worker.h"
#include "tests/fuzz/input.h"

namespace trainyard::controller {
namespace {

template <typename Message>
bool Parse(absl::string_view bytes, Message& message) {
  return message.ParseFromArray(bytes.data(), int(bytes.size()));
}

// What the controller answers must arrive, and the command line prints it as JSON.
void CheckAnswer(const google::protobuf::Message& message) {
  const std::unique_ptr<google::protobuf::Message> received(message.New());
  CHECK(received->ParseFromString(message.SerializeAsString())) << message.DebugString();
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &json);
  CHECK(printed.ok()) << message.DebugString() << printed.ToString();
}

void CheckRegister(const v1::Register& message) {
  const auto registration = FromProto(message);
  if (!registration.ok()) return fuzz::CheckRefusal(registration.status());
  Worker worker;
  worker.registration = *registration;
  CheckAnswer(ToProto(worker, {}));
}

void CheckConnect(v1::ConnectRequest request) {
  if (const absl::Status status = ApplyBounds(request); !status.ok()) {
    return fuzz::CheckRefusal(status);
  }
  if (request.has_register_()) CheckRegister(request.register_());
  if (request.has_rank_status()) FromProto(request.rank_status());
  if (request.has_step()) {
    const StepReport report = FromProto(request.step());
    v1::StepRecord answer;
    WriteMessage(report.record, answer);
    CheckAnswer(answer);
    CHECK(report.record.model_flops >= 0);
  }
  if (request.has_log()) {
    for (const v1::LogLine& line : request.log().lines()) {
      LogRecord record;
      ReadMessage(line, record);
      v1::LogLine answer;
      WriteMessage(record, answer);
      CheckAnswer(answer);
    }
  }
  if (request.has_checkpoint()) {
    // The job is stored with the checkpoint, and shown.
    Job job;
    job.spec = std::make_shared<const Spec>();
    const auto report = ReadMessage<CheckpointReport>(request.checkpoint());
    const CheckpointRecord& saved = report.checkpoint;
    job.checkpoints = {{saved.step, report.id.epoch, saved.path, saved.size_bytes, report.time}};
    CheckAnswer(ToProto(job));
    const auto stored = DecodeJob(EncodeJob(job));
    CHECK(stored.ok()) << stored.status().ToString();
    CHECK(stored->checkpoints[0].create_time == job.checkpoints[0].create_time);
  }
}

void CheckCreateToken(const v1::CreateTokenRequest& request) {
  const auto grant = GrantFor(request, "admin", absl::FromUnixSeconds(1'800'000'000));
  if (!grant.ok()) return fuzz::CheckRefusal(grant.status());
  CheckAnswer(*grant);
  const auto stored = GrantFromJson(ToJson({*grant, std::string(64, 'a'), std::string(64, 'b')}));
  CHECK(stored.ok()) << stored.status().ToString();
  CHECK(stored->grant.SerializeAsString() == grant->SerializeAsString());
}

void CheckGrantFile(const std::string& text) {
  const auto read = GrantFromJson(text);
  if (!read.ok()) return fuzz::CheckRefusal(read.status());
  CheckAnswer(read->grant);
  const auto again = GrantFromJson(ToJson(*read));
  CHECK(again.ok() && ToJson(*again) == ToJson(*read)) << ToJson(*read);
}

}  // namespace

void Run(absl::string_view kind, absl::string_view bytes) {
  v1::ConnectRequest connect;
  v1::CreateTokenRequest create;
  if (kind == "connect" && Parse(bytes, connect)) CheckConnect(connect);
  if (kind == "create_token" && Parse(bytes, create)) CheckCreateToken(create);
  if (kind == "grant") CheckGrantFile(std::string(bytes));
  if (kind == "job_id") {  // Of most requests; ListJobs' page_token is one.
    if (const auto number = JobNumber(bytes)) CHECK(JobId(*number) == bytes) << bytes;
  }
  if (kind == "worker_uri") {
    WorkerName name;
    if (ParseUri(bytes, name)) CHECK(ToUri(name) == bytes) << bytes;
  }
  if (kind == "reason") {  // Of CancelJob, and all other text that is stored.
    const std::string valid = ValidUtf8(bytes);
    CHECK(valid.size() == bytes.size() && ValidUtf8(valid) == valid);
    CHECK(ValidUtf8(CutUtf8(valid, 512)) == CutUtf8(valid, 512));
    CHECK(ValidUtf8(LastUtf8(valid, 512)) == LastUtf8(valid, 512));
    CHECK(ValidUtf8(VisibleUtf8(valid)) == VisibleUtf8(valid));
  }
}

}  // namespace trainyard::controller

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  trainyard::fuzz::Input input(data, size);
  const absl::string_view kind = input.Line();
  trainyard::controller::Run(kind, input.Rest());
  return 0;
}
