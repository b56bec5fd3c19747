// The worker's page: promtool accepts it, it carries what the ranks said, and series do not pile
// up.

#include "worker/daemon/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "prometheus/text_serializer.h"
#include "tests/worker/daemon/testing.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Page(const WorkerMetrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.registry()->Collect());
}

channel::Step Step() {
  channel::Step step;
  step.step = 1;
  step.seconds = 0.25;
  step.phases.grad_sync = 0.05;
  step.memory_bytes = 2000;
  step.memory_planned_bytes = 1000;
  return step;
}

TEST(WorkerMetricsTest, PromtoolAcceptsThePage) {
  TemporaryDirectory directory;
  WorkerMetrics metrics("host");
  metrics.RankStarted({"job", 1, 0}, {.index = 0});
  metrics.StepFinished({"job", 1, 0}, Step());
  const std::string file = directory.path() + "/page";
  std::ofstream(file) << Page(metrics);
  const std::string command = "promtool check metrics < " + file;
  EXPECT_EQ(std::system(command.c_str()), 0) << Page(metrics);
}

TEST(WorkerMetricsTest, CarriesWhatTheRanksSaidOverAttempts) {
  WorkerMetrics metrics("host");
  for (uint64_t epoch = 1; epoch <= 2; ++epoch) {
    metrics.RankStarted({"job", epoch, 3}, {.index = 1});
    metrics.StepFinished({"job", epoch, 3}, Step());
  }
  const std::string page = Page(metrics);
  EXPECT_THAT(page,
              HasSubstr("trainyard_rank_step_duration_seconds_count{job_id=\"job\",rank=\"3\"} 2"));
  EXPECT_THAT(page, HasSubstr("trainyard_rank_wait_seconds_total{job_id=\"job\",rank=\"3\"} 0.1"));
  EXPECT_THAT(page, HasSubstr("kind=\"peak\",rank=\"3\"} 2000"));
  EXPECT_THAT(page, HasSubstr("Hostname=\"host\""));
}

// Bug it must catch: labels that join with no series of the DCGM exporter.
TEST(WorkerMetricsTest, NamesARanksGpuAsTheDcgmExporterDoes) {
  WorkerMetrics metrics("host");
  metrics.RankStarted({"job", 1, 0}, {.index = 1, .gpu = Gpu{.index = 5, .uuid = "GPU-8a56"}});
  EXPECT_THAT(Page(metrics),
              HasSubstr("trainyard_device_info{Hostname=\"host\",UUID=\"GPU-8a56\",gpu=\"5\","
                        "job_id=\"job\",rank=\"0\"} 1"));
}

TEST(WorkerMetricsTest, SeriesOfAnEndedRankGoAfterAWhile) {
  WorkerMetrics metrics("host");
  const RankId id = {"job", 1, 0};
  metrics.RankStarted(id, {.index = 0});
  metrics.StepFinished(id, Step());
  metrics.RankEnded(id, absl::Seconds(100));
  metrics.Expire(absl::Seconds(200));
  EXPECT_THAT(Page(metrics), HasSubstr("job_id=\"job\""));
  metrics.Expire(absl::Seconds(500));
  EXPECT_THAT(Page(metrics), Not(HasSubstr("job_id=\"job\"")));
}

TEST(WorkerMetricsTest, SaysWhenTheCertificateExpiresIfThereIsOne) {
  WorkerMetrics metrics("host");
  EXPECT_THAT(Page(metrics), Not(HasSubstr("\ntrainyard_certificate_expiry_timestamp_seconds ")));
  metrics.CertificateExpires(absl::FromUnixSeconds(1700000000));
  EXPECT_THAT(Page(metrics),
              HasSubstr("\ntrainyard_certificate_expiry_timestamp_seconds 1700000000\n"));
}

TEST(WorkerMetricsTest, CountsWhatWasDropped) {
  WorkerMetrics metrics("host");
  metrics.OutboxDropped({.steps = 3, .log_lines = 5});
  metrics.OutboxDropped({.steps = 4, .log_lines = 5});
  metrics.SpoolDropped(7);
  metrics.SpoolDropped(1);
  const std::string page = Page(metrics);
  EXPECT_THAT(page, HasSubstr("trainyard_reports_dropped_total{kind=\"step\"} 4"));
  EXPECT_THAT(page, HasSubstr("trainyard_reports_dropped_total{kind=\"log_line\"} 5"));
  EXPECT_THAT(page, HasSubstr("trainyard_reports_dropped_total{kind=\"spooled_step\"} 8"));
}

}  // namespace
}  // namespace trainyard
