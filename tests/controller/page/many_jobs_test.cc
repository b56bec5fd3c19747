// Proves that a page of a store with 10,000 jobs shows each of them once, and of a job with 200,000
// steps a bounded part that is the right one.

#include <gmock/gmock.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "controller/jobs/job_codec.h"
#include "controller/jobs/job_id.h"
#include "controller/page/site.h"
#include "tests/controller/testing/cluster_fixture.h"

namespace trainyard::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kJobs = 10'000;

class ManyJobsTest : public ClusterFixture {
 protected:
  void Store(WriteBatch batch) {
    std::promise<absl::Status> done;
    store_->Write(std::move(batch), OnFailure::kReport,
                  [&](const absl::Status& status) { done.set_value(status); });
    const absl::Status status = done.get_future().get();
    ASSERT_TRUE(status.ok()) << status;
  }
  // Ended ones; every hundredth is in the namespace "rare".
  void StoreJobs() {
    WriteBatch batch;
    for (uint64_t i = 1; i <= kJobs; ++i) {
      Job job;
      job.state = i % 3 == 0 ? JobState::kFailed : JobState::kSucceeded;
      job.create_time = clock_.Now();
      JobFacts facts;
      facts.name = "job-" + std::to_string(i);
      facts.name_space = i % 100 == 0 ? "rare" : "default";
      batch.new_jobs.push_back(
          {NumberOf(i), job.state, "spec", "{}", EncodeFacts(facts), EncodeJob(job)});
    }
    Store(std::move(batch));
  }
  static uint64_t NumberOf(uint64_t i) { return i * 1024; }

  absl::StatusOr<Page> List(const std::map<std::string, std::string>& query,
                            const std::string& name_space = "") const {
    Reader reader{{.name = "alice", .name_space = name_space}, clock_.Now()};
    return JobsPage({*book_, *coordinator_},
                    {.method = "GET", .path = "/", .query = query, .headers = {}}, reader);
  }
  // The ids that a page has, and the token for the next one.
  static std::vector<std::string> IdsIn(const Page& page) {
    std::vector<std::string> ids;
    const std::string& text = page.body.text();
    const std::string before = "href=\"/jobs/";
    for (size_t at = 0; (at = text.find(before, at)) != std::string::npos;) {
      at += before.size();
      ids.push_back(text.substr(at, 12));
    }
    return ids;
  }
  static std::string NextOf(const Page& page) {
    const std::string& text = page.body.text();
    const size_t link = text.find("rel=\"next\"");
    if (link == std::string::npos) return "";
    return text.substr(text.find("page=", link) + 5, 12);
  }
  std::vector<std::string> AllOf(std::map<std::string, std::string> query,
                                 const std::string& name_space = "") const {
    std::vector<std::string> all;
    for (int pages = 0; pages < 300; ++pages) {
      const absl::StatusOr<Page> page = List(query, name_space);
      EXPECT_TRUE(page.ok()) << page.status();
      const std::vector<std::string> ids = IdsIn(*page);
      EXPECT_LE(ids.size(), 50u);
      all.insert(all.end(), ids.begin(), ids.end());
      query["page"] = NextOf(*page);
      if (query["page"].empty()) return all;
    }
    ADD_FAILURE() << "no end";
    return all;
  }
};

TEST_F(ManyJobsTest, ThePagesTogetherHaveEachJobOnce) {
  StoreJobs();
  const std::vector<std::string> all = AllOf({});
  ASSERT_EQ(all.size(), kJobs);
  for (uint64_t i = 0; i < kJobs; ++i) ASSERT_EQ(all[i], JobId(NumberOf(kJobs - i)));
  EXPECT_EQ(AllOf({{"state", "failed"}}).size(), kJobs / 3);
  EXPECT_THAT(AllOf({{"state", "live"}}), IsEmpty());
  // Few that match among many.
  EXPECT_EQ(AllOf({}, "rare").size(), kJobs / 100);
  EXPECT_EQ(AllOf({{"namespace", "rare"}}).size(), kJobs / 100);
  EXPECT_THAT(AllOf({{"namespace", "default"}}, "rare"), IsEmpty());
  EXPECT_EQ(AllOf({{"name", "JOB-99"}}).size(), 1u + 10 + 100);
  EXPECT_EQ(AllOf({{"name", "job-9900"}, {"state", "failed"}}, "rare").size(), 1u);
  EXPECT_THAT(AllOf({{"name", "%"}}), IsEmpty());
  EXPECT_FALSE(List({{"page", "nonsense"}}).ok());
  EXPECT_FALSE(List({{"state", "nonsense"}}).ok());
}

// As stored before there were namespaces, and one whose name looks like a namespace.
TEST_F(ManyJobsTest, ANamespaceIsReadWhereverItStands) {
  JobFacts facts;
  facts.name = "rare";
  const std::string known = EncodeFacts(facts);
  const std::string older = absl::StrReplaceAll(known, {{"\"namespace\":\"default\",", ""}});
  ASSERT_NE(older, known);
  WriteBatch batch;
  batch.new_jobs.push_back({NumberOf(1), JobState::kFailed, "s", "{}", known, EncodeJob(Job())});
  batch.new_jobs.push_back({NumberOf(2), JobState::kFailed, "s", "{}", older, EncodeJob(Job())});
  Store(std::move(batch));
  const auto rows_in = [&](const JobFilter& filter) {
    return store_->ListJobs(filter, 0, 9)->size();
  };
  EXPECT_EQ(rows_in({.states = {}, .name_space = "default", .name = ""}), 2u);
  EXPECT_EQ(rows_in({.states = {}, .name_space = "rare", .name = ""}), 0u);
  EXPECT_EQ(rows_in({.states = {}, .name_space = "", .name = "rar"}), 2u);
  EXPECT_EQ(rows_in({.states = {}, .name_space = "", .name = "default"}), 0u);
}

TEST_F(ManyJobsTest, OfManyStepsAFewAreReadTheFirstAndTheLastAmongThem) {
  constexpr uint64_t kSteps = 20'000;
  WriteBatch batch;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    JobStep record;
    record.step = step;
    record.loss = 1.0 / double(step);
    record.seconds = 0.5;
    record.tokens = 100;
    record.complete = step < kSteps;
    if (step % 100 == 0) record.validation_loss = 2.0;
    batch.steps.push_back({7, record});
  }
  Store(std::move(batch));
  const auto steps_of = [&](const std::vector<uint64_t>& wanted) {
    std::vector<uint64_t> steps;
    const absl::StatusOr<std::vector<JobStep>> found = store_->SampleSteps(7, wanted);
    EXPECT_TRUE(found.ok()) << found.status();
    for (const JobStep& step : *found) steps.push_back(step.step);
    return steps;
  };
  EXPECT_THAT(steps_of({0, 1, 2, 500, 500, 19'999}), ElementsAre(1, 2, 500, 19'999));
  EXPECT_THAT(steps_of({20'000}), IsEmpty()) << "not every rank has told it";
  EXPECT_THAT(steps_of({}), IsEmpty());
  EXPECT_THAT(*store_->SampleSteps(8, {1}), IsEmpty());
}

TEST_F(ManyJobsTest, TheLastLinesOfARankAreItsOwn) {
  WriteBatch batch;
  for (uint32_t i = 0; i < 1'000; ++i) {
    batch.logs.push_back({7, {clock_.Now(), 1, i % 4, std::to_string(i)}});
  }
  Store(std::move(batch));
  const auto lines_of = [&](int64_t rank, size_t limit) {
    std::vector<std::string> lines;
    for (const LogRecord& line : *store_->LastLogs(7, rank, limit)) lines.push_back(line.text);
    return lines;
  };
  EXPECT_THAT(lines_of(2, 3), ElementsAre("990", "994", "998"));
  EXPECT_THAT(lines_of(-1, 2), ElementsAre("998", "999"));
  EXPECT_THAT(lines_of(4, 2), IsEmpty());
  EXPECT_EQ(lines_of(0, 1'000).size(), 250u);
}

}  // namespace
}  // namespace trainyard::controller
