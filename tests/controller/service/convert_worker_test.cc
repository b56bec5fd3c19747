// What a worker says of itself means the same to the controller, and no field of what either says
// to the other gets lost.

#include "controller/service/convert_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/proto_fields.h"
#include "common/resolved_job_format.h"
#include "common/status_macros.h"
#include "common/worker_fields.h"
#include "controller/service/bounds.h"
#include "tests/testing/messages.h"

namespace trainyard::controller {
namespace {

// Bug it must catch: ranks that may outlive their daemon for minutes, and are given up at once.
TEST(ConvertWorker, RanksMayOutliveTheirDaemonForAsManySecondsAsItSays) {
  v1::Register message;
  message.set_protocol_version(kWorkerProtocolVersion);
  message.set_worker_id("w");
  const auto detach = [&](uint32_t seconds) {
    message.set_detach_seconds(seconds);
    const absl::StatusOr<Registration> registration = FromProto(message);
    EXPECT_TRUE(registration.ok()) << registration.status();
    return registration.ok() ? registration->detach : absl::ZeroDuration();
  };
  EXPECT_EQ(detach(0), absl::ZeroDuration());
  EXPECT_EQ(detach(90), absl::Seconds(90));
  EXPECT_EQ(detach(600), absl::Minutes(10));
  EXPECT_EQ(detach(601), absl::Minutes(10)) << "at most";
}

// Fields of the message that are missing after it was read and written again.
template <typename Struct, typename Message>
std::vector<std::string> Lost() {
  Message sent, back;
  int next = 0;
  trainyard::testing::FillMessage(sent, next);
  WriteMessage(ReadMessage<Struct>(sent), back);
  return trainyard::testing::EmptyFields(back);
}

// Bug it must catch: a name that is misspelt in the table that both sides use.
TEST(ConvertWorker, EveryFieldOfWhatBothSidesHoldSurvives) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  EXPECT_THAT((Lost<CheckpointReport, v1::CheckpointReport>()), IsEmpty());
  // Workers do not number lines.
  EXPECT_THAT((Lost<LogReport, v1::LogReport>()), ElementsAre("lines.n"));
  EXPECT_THAT((Lost<RendezvousValue, v1::RendezvousValue>()), IsEmpty());
  EXPECT_THAT((Lost<StopOrder, v1::StopRanks>()), IsEmpty());
  EXPECT_THAT((Lost<RankPlacement, v1::RankPlacement>()), IsEmpty());
  EXPECT_THAT((Lost<trainyard::Device, v1::Device>()), ElementsAre("kind", "job_id", "rank"));
  EXPECT_THAT((Lost<CollectiveUse, v1::CollectiveUse>()), IsEmpty());
}

TEST(ConvertWorker, EveryFieldOfAnOrderIsSaid) {
  StartOrder start_order;
  start_order.job_id = "j-1", start_order.epoch = 2, start_order.world = 2;
  start_order.ranks = {{1, 6, "w"}};
  start_order.job_config = absl::StrCat(R"({"format": )", kResolvedJobFormat, "}");
  start_order.claimed = true, start_order.recorded_step = 5, start_order.history_after = 4;
  start_order.recorded_epoch = 1, start_order.roots = {"/data"};
  const std::vector<Order> orders = {
      Registered{absl::Seconds(1), absl::Seconds(2)},
      start_order,
      StopOrder{"j-1", 2, StopMode::kKill},
      RendezvousValue{"j-1", 2, "key", "value"},
  };
  std::vector<std::string> empty;
  for (const Order& order : orders) {
    for (const std::string& field : trainyard::testing::EmptyFields(ToProto(order))) {
      if (field.find('.') != field.npos) empty.push_back(field);
    }
  }
  EXPECT_THAT(empty, ::testing::IsEmpty());
  const v1::ConnectResponse start = ToProto(orders[1]);
  ASSERT_EQ(start.start_ranks().ranks_size(), 1);
  EXPECT_EQ(start.start_ranks().ranks(0).rank(), 1u);
  EXPECT_EQ(start.start_ranks().ranks(0).device(), 6u);
  EXPECT_EQ(start.start_ranks().world(), 2u);
  EXPECT_EQ(ToProto(orders[0]).registered().lease_milliseconds(), 2000u);
}

absl::Status Read(v1::Register message) {
  RETURN_IF_ERROR(ApplyBounds(message));
  return FromProto(message).status();
}

v1::Register SmallRegister() {
  v1::Register message;
  message.set_protocol_version(kWorkerProtocolVersion);
  message.set_worker_id("w");
  message.add_devices()->set_kind(v1::DEVICE_KIND_CPU);
  return message;
}

// Bug it must catch: a text or a list without a bound is kept for every worker, and listed to
// everybody.
TEST(ConvertWorker, RegistrationsHaveBounds) {
  using Edit = void (*)(v1::Register&);
  const std::vector<Edit> too_much = {
      [](v1::Register& m) { m.set_worker_id("a b"); },
      [](v1::Register& m) { m.set_worker_id(std::string(65, 'w')); },
      [](v1::Register& m) { m.set_instance_id(std::string(257, 'i')); },
      [](v1::Register& m) { m.set_hostname(std::string(257, 'h')); },
      [](v1::Register& m) { m.set_version(std::string(257, 'v')); },
      [](v1::Register& m) { m.set_metrics_url(std::string(1025, 'u')); },
      [](v1::Register& m) { m.add_roots(std::string(4097, '/')); },
      [](v1::Register& m) { m.mutable_devices(0)->set_model(std::string(257, 'm')); },
      [](v1::Register& m) { m.mutable_devices(0)->mutable_gpu()->set_uuid(std::string(257, 'g')); },
      [](v1::Register& m) { m.mutable_devices(0)->add_peak()->set_dtype(std::string(65, 'd')); },
      [](v1::Register& m) {
        for (int i = 0; i < 17; ++i) m.mutable_devices(0)->add_peak();
      },
      [](v1::Register& m) {
        for (int i = 0; i < 65; ++i) m.add_roots("/data");
      },
      [](v1::Register& m) {
        for (int i = 0; i < 4097; ++i) m.add_running()->set_job_id("j-0000000000");
      },
      [](v1::Register& m) { m.add_running()->set_job_id(std::string(900'000, 'j')); },
  };
  EXPECT_TRUE(Read(SmallRegister()).ok());
  for (size_t i = 0; i < too_much.size(); ++i) {
    v1::Register message = SmallRegister();
    too_much[i](message);
    const absl::Status status = Read(message);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << i << ": " << status;
    EXPECT_LT(status.message().size(), 200u) << i;
  }
}

TEST(ConvertWorker, EveryReportNamesAJobByItsId) {
  using Name = void (*)(v1::ConnectRequest&, const std::string&);
  const std::vector<Name> kinds = {
      [](v1::ConnectRequest& m, const std::string& id) { m.mutable_rank_status()->set_job_id(id); },
      [](v1::ConnectRequest& m, const std::string& id) { m.mutable_step()->set_job_id(id); },
      [](v1::ConnectRequest& m, const std::string& id) { m.mutable_checkpoint()->set_job_id(id); },
      [](v1::ConnectRequest& m, const std::string& id) { m.mutable_log()->set_job_id(id); },
      [](v1::ConnectRequest& m, const std::string& id) {
        m.mutable_rendezvous_set()->set_job_id(id);
      },
      [](v1::ConnectRequest& m, const std::string& id) {
        m.mutable_rendezvous_get()->set_job_id(id);
      },
  };
  const std::string long_path(4097, '/');
  for (const Name name : kinds) {
    v1::ConnectRequest message;
    name(message, "j-0000000000");
    EXPECT_TRUE(ApplyBounds(message).ok()) << message.message_case();
    for (const std::string& id : {std::string(), std::string("j-1"), std::string(900'000, 'j')}) {
      name(message, id);
      EXPECT_TRUE(absl::IsInvalidArgument(ApplyBounds(message))) << message.message_case();
    }
  }
  v1::ConnectRequest saved, ready;
  saved.mutable_checkpoint()->set_job_id("j-0000000000");
  saved.mutable_checkpoint()->mutable_checkpoint()->set_path(long_path);
  EXPECT_TRUE(absl::IsInvalidArgument(ApplyBounds(saved)));
  saved.mutable_checkpoint()->mutable_checkpoint()->set_path("/runs/a");
  saved.mutable_checkpoint()->set_duration_seconds(-5);  // Counters only grow.
  EXPECT_TRUE(ApplyBounds(saved).ok());
  EXPECT_EQ(saved.checkpoint().duration_seconds(), 0);
  ready.mutable_rank_status()->set_job_id("j-0000000000");
  ready.mutable_rank_status()->add_loadable()->set_path(long_path);
  ready.mutable_rank_status()->add_loadable()->set_path("/runs/a");
  ready.mutable_rank_status()->add_loadable()->set_path(long_path);
  EXPECT_TRUE(ApplyBounds(ready).ok());
  ASSERT_EQ(ready.rank_status().loadable_size(), 1);
  EXPECT_EQ(ready.rank_status().loadable(0).path(), "/runs/a");
}

TEST(ConvertWorker, WordsForPeopleAreCut) {
  v1::RankStatus status;
  status.set_state(v1::RANK_STATE_READY);
  status.set_message(std::string(100'000, 'm'));
  for (int i = 0; i < 1000; ++i) status.add_refused(std::string(900, 'r'));
  status.set_job_id("j-0000000000");
  ASSERT_TRUE(ApplyBounds(status).ok());
  const RankStatus read = FromProto(status);
  EXPECT_EQ(read.message.size(), 4096u);
  ASSERT_EQ(read.resumed->refused.size(), 32u);
  EXPECT_EQ(read.resumed->refused[0].size(), 512u);
}

// Bug it must catch: a sum over jobs that one worker's wrong number makes NaN, infinite or smaller.
TEST(ConvertWorker, ACounterIsGivenNoNumberThatItCannotTake) {
  for (const double number : {double(NAN), -1.0, double(-INFINITY), double(INFINITY), 0.0, 2.5}) {
    v1::StepReport report;
    report.set_job_id("j-0000000000");
    report.mutable_record()->set_seconds(number);
    report.mutable_record()->mutable_phases()->set_forward(number);
    report.set_model_flops(number);
    report.set_peak_flops(number);
    report.add_collectives()->set_seconds(number);
    ASSERT_TRUE(ApplyBounds(report).ok());
    const StepReport read = FromProto(report);
    const double wanted = number == 2.5 ? number : 0;
    EXPECT_EQ(read.record.seconds, wanted);
    EXPECT_EQ(read.record.phases.forward, wanted);
    EXPECT_EQ(read.record.model_flops, wanted);
    EXPECT_EQ(read.record.peak_flops.value_or(0), wanted);
    EXPECT_EQ(read.record.peak_flops.has_value(), wanted > 0);
    EXPECT_EQ(read.record.collectives.at(0).seconds, wanted);
  }
}

}  // namespace
}  // namespace trainyard::controller
