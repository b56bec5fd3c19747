// Proves that a controller of this release serves workers and clients of the next one: it ignores
// what they say beyond its knowledge, and says plainly what it cannot do.

#include "tests/testing/next_release.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>

#include "controller/access/grants.h"
#include "tests/controller/testing/server_fixture.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::controller {
namespace {

using google::protobuf::Message;
using google::protobuf::MessageFactory;
using ::testing::HasSubstr;

class NextReleaseTest : public ServerFixture {
 protected:
  // One call of any method, with metadata that this release does not know.
  grpc::Status Call(const std::string& path, const Message& request) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    SetDeadline(context);
    context.AddMetadata("trainyard-next", "1");
    grpc::Slice slice(request.SerializeAsString());
    grpc::ByteBuffer sent(&slice, 1), received;
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, path, sent, &queue);
    grpc::Status status;
    call->StartCall();
    call->Finish(&received, &status, this);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return status;
  }

  // How many messages a stream about the job has, asked for with unknown fields.
  template <typename Request, typename Response>
  int Messages(std::unique_ptr<grpc::ClientReader<Response>> (v1::JobService::Stub::*method)(
                   grpc::ClientContext*, const Request&),
               const std::string& id) {
    Request request;
    request.set_job_id(id);
    AddUnknownFields(request);
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stream = (*jobs_.*method)(&context, request);
    int messages = 0;
    for (Response response; stream->Read(&response);) ++messages;
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return messages;
  }

  int DevicesOf(const std::string& id) {
    v1::GetWorkerRequest request;
    request.set_worker_id(id);
    v1::GetWorkerResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    EXPECT_TRUE(cluster_->GetWorker(&context, request, &response).ok());
    return response.worker().devices_size();
  }
};

// A request without anything in it, or about a job that there is; answered the same either way.
TEST_F(NextReleaseTest, UnknownFieldsAndMetadataChangeNoAnswer) {
  const std::string id = MustSubmit(Spec());
  int methods = 0;
  for (const auto* file : {v1::Grant::descriptor()->file(), v1::Job::descriptor()->file(),
                           v1::Worker::descriptor()->file()}) {
    for (int m = 0; m < file->service(0)->method_count(); ++m) {
      const auto& method = *file->service(0)->method(m);
      if (method.server_streaming()) continue;
      SCOPED_TRACE(method.full_name());
      const std::string path = "/" + method.service()->full_name() + "/" + method.name();
      const std::unique_ptr<Message> request(
          MessageFactory::generated_factory()->GetPrototype(method.input_type())->New());
      if (const auto* field = method.input_type()->FindFieldByName("job_id")) {
        request->GetReflection()->SetString(request.get(), field, id);
      }
      const grpc::Status plain = Call(path, *request);
      AddUnknownFields(*request);
      const grpc::Status with_more = Call(path, *request);
      EXPECT_EQ(plain.error_code(), with_more.error_code()) << with_more.error_message();
      EXPECT_EQ(plain.error_message(), with_more.error_message());
      ++methods;
    }
  }
  EXPECT_GE(methods, 12);
}

TEST_F(NextReleaseTest, AnUnknownMethodIsToldPlainly) {
  const grpc::Status status = Call("/trainyard.v1.JobService/PauseJob", v1::GetJobRequest());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("no such method"));
}

// Other than everything else: a job would be trained that is not the one which was asked for.
TEST_F(NextReleaseTest, AnUnknownFieldOrValueOfASpecIsRefusedByName) {
  v1::JobSpec spec = Spec();
  AddUnknownFields(*spec.mutable_batch());
  grpc::Status status = Submit(spec);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("batch.#40000"));
  spec = Spec();
  spec.set_precision(v1::Precision(99));
  status = Submit(spec);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("precision"));
}

TEST_F(NextReleaseTest, AWorkerThatSaysMoreRunsAJobToItsEnd) {
  ScriptedWorker worker(channel_, "w", 1, {}, {}, [](v1::Register& m) {
    AddUnknownFields(m);
    v1::Device& other = *m.add_devices();
    other.set_index(1);
    other.set_kind(v1::DeviceKind(99));
  });
  const std::string id = MustSubmit(Spec(1, "runs/a"));
  worker.AwaitStart();
  EXPECT_EQ(DevicesOf("w"), 1) << "a device of an unknown kind is offered to jobs";
  const auto send = [&](v1::ConnectRequest request) {
    AddUnknownFields(request);
    worker.Send(std::move(request));
  };
  const auto status = [&](v1::RankState state) {
    v1::ConnectRequest request;
    *request.mutable_rank_status() = ScriptedWorker::Status(id, 1, 0, state);
    return request;
  };
  send(status(v1::RANK_STATE_STARTING));
  send(status(v1::RANK_STATE_READY));
  send(status(v1::RankState(99)));
  send({});  // A kind of message that this release does not know.
  worker.AwaitAck();
  v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING) << "a rank in an unknown state counts as ended";
  EXPECT_EQ(job.epoch(), 1);
  for (uint64_t step = 1; step <= 10; ++step) worker.Step(id, 1, 0, step);
  v1::ConnectRequest exit = status(v1::RANK_STATE_EXITED);
  exit.mutable_rank_status()->set_cause(v1::EXIT_CAUSE_COMPLETED);
  send(exit);
  EXPECT_EQ(AwaitState(id, v1::JOB_STATE_SUCCEEDED).progress().step(), 10);
  EXPECT_EQ(Messages(&v1::JobService::Stub::WatchJob, id), 1);
  EXPECT_GE(Messages(&v1::JobService::Stub::StreamSteps, id), 1);
  EXPECT_EQ(Messages(&v1::JobService::Stub::StreamLogs, id), 0);
}

TEST_F(NextReleaseTest, AnUnknownCauseOfAnExitIsAFailureThatIsTriedAgain) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  worker->Say(id, 1, 0, v1::RANK_STATE_READY);
  worker->Exit(id, 1, 0, v1::ExitCause(99));
  EXPECT_EQ(worker->AwaitStart().epoch(), 2);
}

TEST_F(NextReleaseTest, ARankInAnUnknownStateIsThereWhenItsWorkerComesBack) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  worker->Say(id, 1, 0, v1::RANK_STATE_READY);
  AwaitState(id, v1::JOB_STATE_RUNNING);
  const uint64_t sequence = worker->sequence();
  worker.reset();
  worker = Worker("w", 1, {ScriptedWorker::Status(id, 1, 0, v1::RankState(99))});
  worker->set_sequence(sequence);
  worker->Step(id, 1, 0, 1);
  const v1::Job job = Await(id, [](const v1::Job& j) { return j.progress().step() == 1; });
  EXPECT_EQ(job.restarts(), 0);
}

// ROLE_ADMIN is 4: a larger number is no role that includes it.
TEST(NextRelease, AGrantWithARoleThatIsNotKnownOpensNothing) {
  const std::string hash(64, 'a');
  const auto grant = [&](const std::string& role) {
    return GrantFromJson(R"({"grant": {"id": "x", "role": )" + role + R"(}, "secret_sha256": ")" +
                         hash + R"("})");
  };
  EXPECT_TRUE(grant("\"ROLE_VIEWER\"").ok());
  EXPECT_FALSE(grant("7").ok());
  EXPECT_FALSE(grant("\"ROLE_AUDITOR\"").ok());
  // Such a key may be a limit.
  EXPECT_FALSE(grant("\"ROLE_VIEWER\", \"onlyFrom\": \"10.0.0.0/8\"").ok());
}

}  // namespace
}  // namespace trainyard::controller
