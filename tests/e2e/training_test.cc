// Proves the whole path through the real binaries: a job on two ranks of two workers trains, every
// step is reported once, its checkpoint is good and writes text, and the pages of controller and
// workers are what Prometheus accepts.

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "common/text.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

void ExpectEveryStepOnceAndAFallingLoss(const std::vector<nlohmann::json>& steps, size_t wanted) {
  ASSERT_EQ(steps.size(), wanted);
  double first = 0, last = 0;
  for (size_t i = 0; i < wanted; ++i) {
    SCOPED_TRACE(steps[i].dump());
    EXPECT_EQ(steps[i].at("step"), i + 1);
    EXPECT_EQ(steps[i].at("tokens"), 4 * 64);
    EXPECT_GT(steps[i].at("seconds").get<double>(), 0);
    if (i < 5) first += steps[i].at("loss").get<double>();
    if (i + 5 >= wanted) last += steps[i].at("loss").get<double>();
  }
  EXPECT_LT(last, 0.98 * first);
}

void ExpectPrometheusAccepts(Service& service, const std::string& url) {
  const std::string page = HttpGet(url);
  ASSERT_NE(page, "") << url;
  const std::string path = service.Write("page.prom", page);
  Process promtool({.argv = {"/bin/sh", "-c", absl::StrCat("promtool check metrics < ", path)},
                    .directory = service.directory(),
                    .environment = {},
                    .output = service.directory() + "/promtool.out",
                    .errors = service.directory() + "/promtool.err"});
  EXPECT_EQ(promtool.Wait(absl::Seconds(20)), 0)
      << url << "\n"
      << ReadFile(service.directory() + "/promtool.err").value_or("") << page;
}

// Of two ranks the one that `profile.ranks` names, which every form of the job repeats.
void ExpectTheTraceOfRank1(Service& service, const std::string& id) {
  EXPECT_EQ(service.Job(id).at("/spec/profile/ranks"_json_pointer), nlohmann::json::array({1}));
  const Finished json = service.Trainyard({"get", id, "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(json.output).at("/spec/profile/ranks"_json_pointer),
            nlohmann::json::array({1}));
  const std::string traces = absl::StrCat(service.directory(), "/traces/", id, "-epoch-1-rank-");
  const auto trace = ReadFile(traces + "1-step-3.json");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(*trace, AllOf(HasSubstr("\"step\":3"), HasSubstr("\"step\":4")));
  EXPECT_TRUE(nlohmann::json::accept(*trace)) << *trace;
  EXPECT_FALSE(ReadFile(traces + "0-step-3.json").ok());
}

TEST(Training, AJobOnTwoWorkersTrainsReportsAndWrites) {
  Service service({.workers = 2, .devices_per_worker = 1});
  const TestJob job{.name = "train",
                    .steps = 40,
                    .devices = 2,
                    .checkpoint_every = 20,
                    .directory = "runs/train",
                    .more =
                        "validation: {every_steps: 20}\n"
                        "profile: {directory: traces, start_step: 3, steps: 2, ranks: [1]}"};
  const Finished watched =
      service.Trainyard({"submit", service.Write("train.yaml", job.Text()), "--watch"});
  EXPECT_EQ(watched.exit_code, 0) << watched;
  const std::string id = watched.output.substr(0, watched.output.find('\n'));
  EXPECT_THAT(watched.output, AllOf(HasSubstr(id + " SUCCEEDED"), HasSubstr("checkpoint ")));

  const auto steps = service.Steps(id);
  ExpectEveryStepOnceAndAFallingLoss(steps, 40);
  for (const auto& step : steps) ExpectPhasesFitIntoTheStep(step);
  EXPECT_GT(steps[30].value("mfu", 0.0), 0);
  EXPECT_LT(steps[30].value("mfu", 2.0), 1);
  EXPECT_TRUE(steps[19].contains("validation_loss"));
  EXPECT_TRUE(steps[39].contains("validation_loss"));

  ExpectTheTraceOfRank1(service, id);
  ExpectPrometheusAccepts(service, service.metrics_url());
  EXPECT_THAT(
      HttpGet(service.metrics_url()),
      AllOf(HasSubstr(absl::StrCat("trainyard_mfu_ratio{job_id=\"", id, "\"}")),
            HasSubstr("trainyard_model_flops_total"), HasSubstr("trainyard_loss{"),
            HasSubstr(absl::StrCat("trainyard_collective_bytes_total{group=\"data\",job_id=\"", id,
                                   "\",op=\"reduce_scatter_sum\"} ")),
            HasSubstr(absl::StrCat("trainyard_collective_seconds_total{group=\"everyone\","
                                   "job_id=\"",
                                   id, "\",op=\"all_reduce_sum\"} "))));
  const Finished workers = service.Trainyard({"workers", "-o", "jsonl"});
  int pages = 0;
  for (absl::string_view line : absl::StrSplit(workers.output, '\n', absl::SkipEmpty())) {
    const auto worker = nlohmann::json::parse(line, nullptr, false);
    ExpectPrometheusAccepts(service, worker.at("metrics_url").get<std::string>());
    ++pages;
  }
  EXPECT_EQ(pages, 2);
}

// Value of the one series of a page that begins so.
double Series(const std::string& page, const std::string& series) {
  double value = std::nan("");
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!absl::ConsumePrefix(&line, series + " ")) continue;
    EXPECT_TRUE(absl::SimpleAtod(line, &value)) << line;
  }
  return value;
}

// The best rates that a worker has measured, and a worker that is started again goes by.
void MakeThreeTimesAsFast(const std::string& file) {
  auto best = nlohmann::json::parse(ReadFile(file).value());
  for (auto& [device, rates] : best.at("rates").items()) {
    for (auto& [dtype, rate] : rates.items()) rate = 3 * rate.get<double>();
  }
  ASSERT_TRUE(WriteFileAtomic(file, best.dump()).ok());
}

// Bug it must catch: rank 0's log line is of its own peak, and the record of everybody's.
TEST(Training, LogRecordAndPageShowOneMfuOfRanksWithUnequalPeaks) {
  Service service({.workers = 2, .devices_per_worker = 1});
  service.up().Signal(SIGTERM);
  ASSERT_EQ(service.up().Wait(absl::Seconds(60)), 0);
  MakeThreeTimesAsFast(service.directory() + "/state/worker-0/measured.json");
  service.StartAgain();
  const std::string id = service.Submit({.name = "mfu", .steps = 4, .devices = 2});
  EXPECT_EQ(service.WaitForEnd(id), "SUCCEEDED");

  double peak = 0;  // The sum of both workers'; one CPU rank each.
  for (absl::string_view line : absl::StrSplit(service.Trainyard({"workers", "-o", "jsonl"}).output,
                                               '\n', absl::SkipEmpty())) {
    const auto worker = nlohmann::json::parse(line);
    for (const auto& rate : worker.at("devices").at(0).at("peak")) {
      if (rate.at("dtype") == "f32") peak += rate.at("flops").get<double>();
    }
  }
  const std::string page = HttpGet(service.metrics_url());
  const std::string label = absl::StrCat("{job_id=\"", id, "\"}");
  EXPECT_NEAR(Series(page, "trainyard_peak_flops" + label), peak, 1e-5 * peak);
  const double flops =
      Series(page, absl::StrCat("trainyard_model_flops_total{convention=\"exact\",job_id=\"", id,
                                "\"}")) /
      4;  // Of a step.

  const std::vector<nlohmann::json> steps = service.Steps(id);
  ASSERT_EQ(steps.size(), 4u);
  const std::string log = service.Trainyard({"logs", id}).output;
  for (const nlohmann::json& step : steps) {
    const double mfu = step.at("mfu");
    EXPECT_NEAR(mfu, flops / step.at("seconds").get<double>() / peak, 1e-4 * mfu) << step;
    EXPECT_THAT(log, ContainsRegex(absl::StrFormat("step %d/4 [^\n]* MFU %.1f%% ",
                                                   step.at("step").get<int>(), 100 * mfu)));
  }
  EXPECT_NEAR(Series(page, "trainyard_mfu_ratio" + label), steps.back().at("mfu").get<double>(),
              1e-5);
}

TEST(Training, ItsCheckpointsAreListedGoodAndWriteText) {
  Service service({.workers = 1, .devices_per_worker = 1});
  const std::string id = service.Submit(
      {.name = "write", .steps = 10, .checkpoint_every = 5, .directory = "runs/write"});
  EXPECT_EQ(service.WaitForEnd(id), "SUCCEEDED");
  const Finished list = service.Trainyard({"checkpoint", "list", "runs/write", "-o", "jsonl"});
  const std::vector<std::string> lines = absl::StrSplit(list.output, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u) << list;
  const auto newest = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(newest.at("step"), 10);
  const std::string path = newest.at("path");
  const Finished verified = service.Trainyard({"checkpoint", "verify", path, "-o", "jsonl"});
  EXPECT_EQ(verified.exit_code, 0) << verified;
  EXPECT_EQ(nlohmann::json::parse(verified.output).at("good"), true);
  EXPECT_EQ(service.Trainyard({"checkpoint", "list", path}).exit_code, 1);
  const Finished inspected = service.Trainyard({"checkpoint", "inspect", path, "-o", "json"});
  EXPECT_THAT(inspected.output, AllOf(HasSubstr("model.embed_tokens.weight"),
                                      HasSubstr("\"step\": 10"), HasSubstr("\"pipeline\": 1")));
  EXPECT_EQ(service.Digest(path).size(), 64u);

  const std::vector<std::string> generate = {"generate", path,       "--prompt",
                                             "In the ",  "--tokens", "20"};
  const Finished text = service.Trainyard(generate);
  EXPECT_EQ(text.exit_code, 0) << text;
  EXPECT_EQ(text.output.size(), std::string("In the \n").size() + 20);
  EXPECT_EQ(text.output, ValidUtf8(text.output)) << "after so few steps, it would not be by chance";
  EXPECT_EQ(service.Trainyard(generate).output, text.output);  // The same seed.
  std::vector<std::string> divided = generate;
  divided.insert(divided.end(), {"--tensor", "2"});
  const Finished of_two = service.Trainyard(divided);
  EXPECT_EQ(of_two.output, text.output) << of_two;

  // A changed weight is never used: not of the checkpoint that is named, and of a job's the one
  // before is taken.
  std::fstream data(service.directory() + "/" + path + "/rank-0.bin",
                    std::ios::binary | std::ios::in | std::ios::out);
  ASSERT_TRUE(data.seekp(5).put('\x7f').flush());
  const Finished damaged = service.Trainyard(generate);
  EXPECT_EQ(damaged.exit_code, 1) << damaged;
  EXPECT_THAT(damaged.errors, HasSubstr("damaged"));
  EXPECT_EQ(service.Trainyard({"checkpoint", "verify", path}).exit_code, 1);
  const Finished before = service.Trainyard({"generate", "runs/write", "--tokens", "20"});
  EXPECT_EQ(before.exit_code, 0) << before;
  EXPECT_THAT(before.errors, HasSubstr(path));
  EXPECT_THAT(service.Trainyard({"steps", id, "--plot"}).output, HasSubstr("training"));
  EXPECT_EQ(service.Trainyard({"logs", id}).exit_code, 0);
  EXPECT_THAT(service.Trainyard({"events", id}).output,
              AllOf(HasSubstr("SUBMITTED"), HasSubstr("PLACED"), HasSubstr("RUNNING"),
                    HasSubstr("CHECKPOINTED"), HasSubstr("FINISHED")));
}

}  // namespace
}  // namespace trainyard::testing
