// Proves that a job which is run again after a death trains on with the files that it began with,
// or says which file is another one and ends with its checkpoints as they were.

#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(char first) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += char(first + i * i % 23);
  return text;
}

TestJob Job(const std::string& name, int steps) {
  return {.name = name,
          .steps = steps,
          .devices = 2,
          .checkpoint_every = 20,
          .directory = "runs/" + name,
          .data = "text: {path: corpus.txt, validation_fraction: 0.1}",
          .more = "validation: {every_steps: 50}"};
}

class ReplacedInputs : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { service_ = new Service({.workers = 2, .devices_per_worker = 1}); }
  static void TearDownTestSuite() {
    delete service_;
    service_ = nullptr;
  }
  // Puts another file in the place of the corpus. Ranks that have opened it read the old one.
  void Replace(const std::string& content) {
    const std::filesystem::path corpus = service_->directory() + "/corpus.txt";
    const std::filesystem::path next = service_->Write("next.txt", content);
    std::filesystem::last_write_time(
        next, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    std::filesystem::rename(next, corpus);
  }
  // The job trains on the corpus, and has checkpoints and steps beyond them.
  std::string SubmitAndReachTheMiddle(const TestJob& job) {
    const std::string id = service_->Submit(job);
    EXPECT_TRUE(service_->WaitForStep(id, 50));
    EXPECT_EQ(service_->State(id), "RUNNING") << "too fast to be disturbed";
    return id;
  }
  // Path and content of every file of the job's checkpoints.
  std::map<std::string, std::string> Checkpoints(const std::string& name) const {
    std::map<std::string, std::string> files;
    const std::string runs = absl::StrCat(service_->directory(), "/runs/", name, "/epoch-1");
    for (const auto& entry : std::filesystem::recursive_directory_iterator(runs)) {
      if (entry.is_regular_file()) files[entry.path()] = ReadFile(entry.path()).value();
    }
    return files;
  }
  static Service* service_;
};
Service* ReplacedInputs::service_ = nullptr;

// Bug it must catch: the next attempt trains on with the new file, and nobody is told.
TEST_F(ReplacedInputs, EndTheJobWithTheReasonAndLeaveItsCheckpoints) {
  service_->Write("corpus.txt", Text('a'));
  const std::string id = SubmitAndReachTheMiddle(Job("replaced", 1'000'000));
  const auto trainers = service_->Trainers(id);
  ASSERT_EQ(trainers.size(), 2u);
  for (const Found& trainer : trainers) Kill(trainer.pid, SIGSTOP);  // Nothing is saved meanwhile.
  const auto before = Checkpoints("replaced");
  Replace(Text('b'));
  for (const Found& trainer : trainers) Kill(trainer.pid, SIGKILL);
  EXPECT_EQ(service_->WaitForEnd(id), "FAILED");
  EXPECT_THAT(service_->Job(id).at("state_reason").get<std::string>(),
              AllOf(HasSubstr("data.text.path: corpus.txt is not the file that attempt 1 read: "
                              "wanted 20000 bytes with the fingerprint "),
                    HasSubstr(", found 20000 bytes with the fingerprint "),
                    HasSubstr("; to train on with other files, submit a job with another "
                              "checkpoint.directory and with init_from: ")));
  EXPECT_EQ(Checkpoints("replaced"), before);
  // As the reason says.
  TestJob next = Job("next", 2);
  next.more = "init_from: runs/replaced";
  const std::string goes_on = service_->Submit(next);
  EXPECT_EQ(service_->WaitForEnd(goes_on), "SUCCEEDED");
}

TEST_F(ReplacedInputs, OfTheSameContentChangeNothing) {
  service_->Write("corpus.txt", Text('a'));
  const std::string undisturbed = service_->Submit(Job("undisturbed", 400));
  EXPECT_EQ(service_->WaitForEnd(undisturbed), "SUCCEEDED");
  const std::string id = SubmitAndReachTheMiddle(Job("copied", 400));
  const auto trainers = service_->Trainers(id);
  ASSERT_EQ(trainers.size(), 2u);
  Replace(Text('a'));
  Kill(trainers[1].pid, SIGKILL);
  EXPECT_EQ(service_->WaitForEnd(id), "SUCCEEDED");
  EXPECT_EQ(service_->Job(id).at("restarts"), 1);
  EXPECT_EQ(service_->Digest("runs/copied"), service_->Digest("runs/undisturbed"));
}

}  // namespace
}  // namespace trainyard::testing
