// Proves that the page carries the documented series of a job that ran, passes promtool, and lets
// MFU be derived from it.

#include <gmock/gmock.h>
#include <prometheus/text_serializer.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/http/metrics_page.h"
#include "tests/controller/testing/server_fixture.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;

class MetricsTest : public ServerFixture {
 protected:
  std::string Page() {
    return prometheus::TextSerializer().Serialize(server_->registry()->Collect());
  }

  // Looks at the page until it is as wanted, or the patience ends.
  bool Eventually(const std::function<bool()>& wanted) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!wanted()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }

  std::string RunAJob() {
    auto worker = Worker("w", 1);
    const std::string id = MustSubmit(Spec(1, "runs/a"));
    worker->AwaitStart();
    worker->Say(id, 1, 0, v1::RANK_STATE_READY);
    for (uint64_t step = 1; step <= 10; ++step) worker->Step(id, 1, 0, step);
    worker->Step(id, 1, 0, 10);  // Told again.
    worker->Save(id, 1, 10, "runs/a/step-10");
    worker->Exit(id, 1, 0, v1::EXIT_CAUSE_COMPLETED);
    AwaitState(id, v1::JOB_STATE_SUCCEEDED);
    return id;
  }
};

TEST_F(MetricsTest, PageCarriesTheSeriesOfAJob) {
  const std::string id = RunAJob();
  const std::string page = Page();
  for (const char* series :
       {"trainyard_build_info{", "trainyard_jobs{state=\"queued\"}",
        "trainyard_jobs_submitted_total 1",
        "trainyard_jobs_finished_total{outcome=\"succeeded\"} 1",
        "trainyard_queue_wait_seconds_count 1", "trainyard_workers{state=\"ready\"}",
        "trainyard_worker_heartbeat_age_seconds{worker_id=\"w\"}",
        "trainyard_scheduling_pass_duration_seconds_count",
        "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"SubmitJob\"",
        "grpc_server_handling_seconds_count{"}) {
    EXPECT_THAT(page, HasSubstr(series));
  }
  const std::string label = "job_id=\"" + id + "\"";
  // The phases of these reports are longer than their steps, which leaves no time of the host.
  for (const std::string& series :
       {"trainyard_steps_total{" + label + "} 10",
        "trainyard_tokens_total{" + label + "} 1280",
        "trainyard_samples_total{" + label + "} 40",
        "trainyard_model_flops_total{convention=\"exact\"," + label + "} 10000000",
        "trainyard_peak_flops{" + label + "} 2000000000",
        "trainyard_mfu_ratio{" + label + "} 0.05",
        "trainyard_tokens_per_second_per_device{" + label + "} 12800",
        "trainyard_loss{" + label + "} 4.5",
        "trainyard_grad_norm{" + label,
        "trainyard_learning_rate{" + label,
        "trainyard_step_duration_seconds_count{" + label + "} 10",
        "trainyard_last_step_timestamp_seconds{" + label,
        "trainyard_startup_seconds{" + label,
        "trainyard_goodput_ratio{" + label,
        "trainyard_estimated_seconds_remaining{" + label + "} 0",
        "trainyard_checkpoint_size_bytes{" + label + "} 1234",
        "trainyard_checkpoint_interval_steps{" + label + "} 2",
        "trainyard_steps_since_checkpoint{" + label + "} 0",
        "trainyard_tokens_seen{" + label + "} 1280",
        "trainyard_skipped_steps_total{" + label + ",reason=\"not_finite\"} 0",
        "trainyard_checkpoint_failures_total{" + label + "} 0",
        "trainyard_restarts_total{" + label + ",reason=\"worker_lost\"} 0",
        "trainyard_last_checkpoint_timestamp_seconds{" + label,
        "trainyard_phase_seconds_total{" + label + ",phase=\"forward\"}",
        "trainyard_phase_seconds_total{" + label + ",phase=\"validation\"} 0.00",
        "trainyard_badput_seconds_total{cause=\"validation\"," + label + "} 0.00",
        "trainyard_phase_seconds_total{" + label + ",phase=\"host\"} 0",
        std::string("trainyard_job_info{")}) {
    EXPECT_THAT(page, HasSubstr(series));
  }
}

// Bug it must catch: the first refusal, failure or lost attempt is none to Prometheus' increase().
TEST_F(MetricsTest, CountersBeginAtZero) {
  const std::string page = Page();
  for (const char* series :
       {"trainyard_jobs_submitted_total 0", "trainyard_jobs_finished_total{outcome=\"failed\"} 0",
        "trainyard_reports_refused_total{report=\"step\"} 0",
        "trainyard_calls_refused_total{reason=\"credential\"} 0",
        "trainyard_store_backup_failures_total 0"}) {
    EXPECT_THAT(page, HasSubstr(series));
  }
}

// Alerts that ask whether a job runs must not fire for one that has ended, or waits.
TEST_F(MetricsTest, AJobRunsFromReadyToItsEnd) {
  const std::string waiting = MustSubmit(Spec());
  EXPECT_TRUE(
      Eventually([&] { return absl::StrContains(Page(), "trainyard_jobs{state=\"queued\"} 1"); }));
  EXPECT_THAT(Page(), ::testing::Not(HasSubstr("trainyard_job_running{")));
  auto worker = Worker("w", 1);
  worker->AwaitStart();
  worker->Say(waiting, 1, 0, v1::RANK_STATE_READY);
  const std::string series = "trainyard_job_running{job_id=\"" + waiting + "\"} 1";
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(Page(), series); }));
  worker->Exit(waiting, 1, 0, v1::EXIT_CAUSE_COMPLETED);
  EXPECT_TRUE(Eventually([&] { return !absl::StrContains(Page(), "trainyard_job_running{"); }));
}

// Bug it must catch: work that a failure would repeat is told as safe.
TEST_F(MetricsTest, StepsSinceTheLastCheckpointAreAtRisk) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec(1, "runs/a"));
  worker->AwaitStart();
  worker->Say(id, 1, 0, v1::RANK_STATE_READY);
  for (uint64_t step = 1; step <= 5; ++step) worker->Step(id, 1, 0, step);
  worker->AwaitAck();
  const std::string series = "trainyard_steps_since_checkpoint{job_id=\"" + id + "\"} ";
  EXPECT_THAT(Page(), HasSubstr(series + "5"));
  worker->Save(id, 1, 4, "runs/a/step-4");
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(Page(), series + "1"); }));
}

TEST_F(MetricsTest, CommitsOfTheStoreAreTimed) {
  MustSubmit(Spec());
  EXPECT_THAT(Page(), ::testing::Not(HasSubstr("trainyard_store_commit_duration_seconds_count 0")));
  EXPECT_THAT(Page(), HasSubstr("trainyard_store_commit_duration_seconds_count "));
}

// A step of a large model over a large batch takes more FLOPs than 64 bits count. And what is no
// number must not spoil a counter for good.
TEST_F(MetricsTest, FlopsBeyondSixtyFourBitsAreCounted) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  uint64_t step = 0;
  for (const double flops : {3e19, std::nan(""), -1.0, 3e19}) {
    v1::ConnectRequest request;
    request.mutable_step()->set_job_id(id);
    request.mutable_step()->set_model_flops(flops);
    request.mutable_step()->mutable_record()->set_step(++step);
    request.mutable_step()->mutable_record()->set_epoch(1);
    request.mutable_step()->set_peak_flops(flops);
    request.mutable_step()->mutable_record()->set_seconds(1e9);
    worker->Send(request);
  }
  worker->AwaitAck();
  EXPECT_THAT(Page(), HasSubstr("trainyard_model_flops_total{convention=\"exact\",job_id=\"" + id +
                                "\"} 6e+19"));
  EXPECT_THAT(Page(), HasSubstr("trainyard_peak_flops{job_id=\"" + id + "\"} 3e+19"));
}

// Only a model that is trained for it has one; its answer and its page say the same.
TEST_F(MetricsTest, LoadBalancingLossIsThereWhereItIsReported) {
  EXPECT_THAT(Page(), ::testing::Not(HasSubstr("trainyard_load_balancing_loss{")));
  const std::string dense = RunAJob();
  EXPECT_FALSE(Steps(dense)[0].has_load_balancing_loss());
  EXPECT_THAT(Page(), ::testing::Not(HasSubstr("trainyard_load_balancing_loss{")));
  auto worker = Worker("moe", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  v1::ConnectRequest request;
  request.mutable_step()->set_job_id(id);
  request.mutable_step()->mutable_record()->set_step(1);
  request.mutable_step()->mutable_record()->set_epoch(1);
  request.mutable_step()->mutable_record()->set_load_balancing_loss(1.25);
  worker->Send(request);
  worker->AwaitAck();
  EXPECT_THAT(Page(), HasSubstr("trainyard_load_balancing_loss{job_id=\"" + id + "\"} 1.25"));
  EXPECT_EQ(Steps(id)[0].load_balancing_loss(), 1.25);
}

// Nothing of what a worker said of its GPU is lost on the way to the store and back.
TEST_F(MetricsTest, AStepKeepsHowTheGpusFared) {
  auto worker = Worker("gpu", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  v1::ConnectRequest request;
  request.mutable_step()->set_job_id(id);
  v1::StepRecord& said = *request.mutable_step()->mutable_record();
  said.set_step(1);
  said.set_epoch(1);
  said.set_gpu_utilization_ratio(0.97);
  said.set_gpu_power_watts(612.5);
  said.set_gpu_sm_clock_hertz(1.755e9);
  said.set_gpu_temperature_celsius(61);
  said.add_gpu_throttle_reasons("sw_power_cap");
  worker->Send(request);
  worker->AwaitAck();
  const v1::StepRecord kept = Steps(id)[0];
  EXPECT_EQ(kept.gpu_utilization_ratio(), 0.97);
  EXPECT_EQ(kept.gpu_power_watts(), 612.5);
  EXPECT_EQ(kept.gpu_sm_clock_hertz(), 1.755e9);
  EXPECT_EQ(kept.gpu_temperature_celsius(), 61);
  ASSERT_EQ(kept.gpu_throttle_reasons_size(), 1);
  EXPECT_EQ(kept.gpu_throttle_reasons(0), "sw_power_cap");
}

v1::ConnectRequest StepWithCollective(const std::string& job, uint32_t rank, double seconds,
                                      const std::string& group = "data") {
  v1::ConnectRequest request;
  v1::StepReport& step = *request.mutable_step();
  step.set_job_id(job);
  step.set_rank(rank);
  step.mutable_record()->set_step(1);
  step.mutable_record()->set_epoch(1);
  v1::CollectiveUse& use = *step.add_collectives();
  use.set_op("all_gather");
  use.set_group(group);
  use.set_bytes(1000);
  use.set_seconds(seconds);
  return request;
}

// Bytes and seconds of all ranks, each report once, whatever a worker calls a number or a group.
TEST_F(MetricsTest, CollectivesAreSummedOverRanks) {
  auto worker = Worker("w", 4);
  const std::string id = MustSubmit(Spec(4));
  worker->AwaitStart();
  worker->Send(StepWithCollective(id, 0, 0.5));
  worker->Send(StepWithCollective(id, 0, 0.5));  // Told again.
  worker->Send(StepWithCollective(id, 1, 0.25));
  worker->Send(StepWithCollective(id, 2, std::nan("")));
  worker->Send(StepWithCollective(id, 3, 1, std::string(1000, 'x')));
  worker->AwaitAck();
  const std::string labels = "{group=\"data\",job_id=\"" + id + "\",op=\"all_gather\"} ";
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("trainyard_collective_bytes_total" + labels + "3000"));
  EXPECT_THAT(page, HasSubstr("trainyard_collective_seconds_total" + labels + "0.75"));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("xxx")));
}

TEST_F(MetricsTest, GroupsWithoutEndMakeSeriesWithAnEnd) {
  auto worker = Worker("w", 1);
  const std::string id = MustSubmit(Spec());
  worker->AwaitStart();
  v1::ConnectRequest request = StepWithCollective(id, 0, 1, "g0");
  const v1::CollectiveUse use = request.step().collectives(0);
  for (int i = 1; i < 1000; ++i) {
    *request.mutable_step()->add_collectives() = use;
    request.mutable_step()->mutable_collectives(i)->set_group("g" + std::to_string(i));
  }
  worker->Send(request);
  worker->AwaitAck();
  EXPECT_THAT(Page(), HasSubstr("group=\"g255\""));
  EXPECT_THAT(Page(), ::testing::Not(HasSubstr("group=\"g256\"")));
}

// Bug it must catch: whoever submits and cancels thousands of jobs makes series without end.
TEST_F(MetricsTest, AJobThatWasNeverPlacedHasNoSeries) {
  const std::string id = MustSubmit(Spec());
  Cancel(id);
  EXPECT_THAT(Page(), HasSubstr("trainyard_jobs_finished_total{outcome=\"cancelled\"} 1"));
  EXPECT_THAT(Page(), ::testing::Not(HasSubstr(id)));
}

TEST_F(MetricsTest, ScrapePassesPromtool) {
  RunAJob();
  const std::string path = directory_.path() + "/page";
  const auto page = MetricsPage::Serve({"127.0.0.1", 0}, server_->registry(), {});
  ASSERT_TRUE(page.ok()) << page.status();
  const std::string fetch =
      "bash -c 'exec 3<>/dev/tcp/127.0.0.1/" + std::to_string((*page)->address().port) +
      R"(; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; sed "1,/^\r*$/d" <&3' > )" + path;
  ASSERT_EQ(std::system(fetch.c_str()), 0);
  EXPECT_THAT(*ReadFile(path), HasSubstr("trainyard_steps_total"));
  FILE* promtool = ::popen(("promtool check metrics 2>&1 < " + path).c_str(), "r");
  ASSERT_NE(promtool, nullptr);
  std::string said(4096, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), promtool));
  EXPECT_EQ(::pclose(promtool), 0) << said;
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace trainyard::controller
