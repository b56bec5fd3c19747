// Proves that a run can be made longer and moved, through the real processes: `submit --continue`
// goes on with the state, the step and the data of a job or a directory, to the bit as an
// undisturbed run where the layout is the same; nothing is lost by a kill; and what would repeat or
// skip samples is refused.

#include <gmock/gmock.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TestJob Job(const std::string& name, int steps) {
  return {.name = name, .steps = steps, .checkpoint_every = 5, .directory = "runs/" + name};
}

class Continue : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    service_ = new Service({.workers = 1, .devices_per_worker = 2});
    whole_ = Losses(Ended(service_->Submit(Job("whole", 20))));
    ASSERT_EQ(whole_.size(), 20u);
  }
  static void TearDownTestSuite() {
    delete service_;
    service_ = nullptr;
  }

  static std::string Ended(const std::string& id) {
    EXPECT_EQ(service_->WaitForEnd(id), "SUCCEEDED");
    return id;
  }
  static std::vector<double> Losses(const std::string& id) {
    std::vector<double> losses;
    for (const auto& step : service_->Steps(id)) losses.push_back(step.at("loss").get<double>());
    return losses;
  }
  static Finished Submit(std::vector<std::string> words) {
    words.insert(words.begin(), "submit");
    return service_->Trainyard(words);
  }
  // Submits a job that goes on, and returns its id.
  static std::string GoOn(const std::vector<std::string>& words) {
    const Finished submitted = Submit(words);
    EXPECT_EQ(submitted.exit_code, 0) << submitted;
    return std::string(absl::StripSuffix(submitted.output, "\n"));
  }
  // The steps of the undisturbed run after `first`, to the bit.
  static void ExpectTheRestOfTheWhole(const std::string& id, int first) {
    const std::vector<nlohmann::json> steps = service_->Steps(id);
    ASSERT_EQ(steps.size(), size_t(20 - first));
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].at("step"), first + 1 + int(i));
      EXPECT_EQ(steps[i].at("loss").get<double>(), whole_[size_t(first) + i]) << "step " << i;
    }
  }
  static std::string Path(const std::string& name) { return service_->directory() + "/" + name; }

  static Service* service_;
  static std::vector<double> whole_;  // Of 20 steps.
};
Service* Continue::service_ = nullptr;
std::vector<double> Continue::whole_;

TEST_F(Continue, AJobsRunWithMoreStepsUnderANewJob) {
  const std::string old = Ended(service_->Submit(Job("longer", 10)));
  EXPECT_THAT(Submit({"--continue", old}).errors,
              HasSubstr("steps: wanted more than 10, the steps of the run"));
  const std::string id = Ended(GoOn({"--continue", old, "--set", "steps=20"}));
  ExpectTheRestOfTheWhole(id, 10);
  EXPECT_EQ(Losses(old).size(), 10u) << "its history stays";
  EXPECT_EQ(service_->Job(id).at("restarts"), 0);
  EXPECT_EQ(service_->Digest("runs/longer"), service_->Digest("runs/whole"));
  EXPECT_THAT(service_->Trainyard({"get", old}).output, HasSubstr("continued by  " + id));
  EXPECT_THAT(service_->Trainyard({"get", id}).output, HasSubstr("continues     " + old));
  EXPECT_THAT(ReadFile(Path("runs/longer/owner.json")).value(), HasSubstr(id));
  // The directory is that of the new job, which can be continued in turn.
  const Finished again = Submit({"--continue", old, "--set", "steps=30"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.errors, HasSubstr("trainyard submit --continue " + id));
  // Another client does not look at the job before. A path of another spelling may be a copy of the
  // directory, so the rank decides.
  TestJob direct = Job("longer", 30);
  direct.more = absl::StrCat("continues: {job: ", old, "}");
  EXPECT_THAT(Submit({service_->Write("direct.yaml", direct.Text())}).errors,
              HasSubstr("continues.job: wanted " + id + ", the job that has the run now"));
  std::filesystem::create_directory_symlink("longer", Path("runs/link"));
  direct.directory = "runs/link";
  const std::string refused = service_->Submit(direct);
  EXPECT_EQ(service_->WaitForEnd(refused), "FAILED");
  EXPECT_THAT(service_->Job(refused).at("state_reason").get<std::string>(),
              HasSubstr("belongs to job " + id + ", not " + old));
  EXPECT_THAT(service_->Trainyard({"get", old}).output, HasSubstr("continued by  " + id))
      << "and not the one that was refused";
  EXPECT_THAT(Submit({"--continue", refused, "--set", "steps=30"}).errors,
              HasSubstr("found " + refused +
                        ", which ended before it had taken over the run; "
                        "to go on with it: trainyard submit --continue " +
                        id));
  EXPECT_EQ(Losses(Ended(GoOn({"--continue", id, "--set", "steps=22"}))).size(), 2u);
}

TEST_F(Continue, ADirectoryThatWasMovedWithoutItsSpec) {
  const std::string old = Ended(service_->Submit(Job("movable", 10)));
  std::filesystem::rename(Path("runs/movable"), Path("runs/moved"));
  const std::string id = Ended(GoOn({"--continue", "runs/moved", "--set", "steps=20"}));
  ExpectTheRestOfTheWhole(id, 10);
  EXPECT_EQ(service_->Job(id).at("spec").at("checkpoint").at("directory"), "runs/moved");
  EXPECT_THAT(service_->Trainyard({"get", old}).output, HasSubstr(id));
}

TEST_F(Continue, OnOtherDevicesInAnotherLayout) {
  Ended(service_->Submit(Job("wider", 10)));
  const std::string wide = Ended(GoOn({"--continue", "runs/wider", "--set", "steps=15", "--set",
                                       "devices=2", "--set", "parallelism.tensor=2"}));
  const std::vector<double> losses = Losses(wide);
  ASSERT_EQ(losses.size(), 5u);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], whole_[10 + i], 1e-4);
  const std::string narrow = Ended(GoOn({"--continue", wide, "--set", "steps=20", "--set",
                                         "devices=1", "--set", "parallelism=null"}));
  EXPECT_EQ(Losses(narrow).size(), 5u);
  EXPECT_NEAR(Losses(narrow).back(), whole_.back(), 1e-4);
}

TEST_F(Continue, ACancelledRunFromItsLastCheckpoint) {
  TestJob job = Job("cancelled", 1'000'000);
  const std::string old = service_->Submit(job);
  ASSERT_TRUE(service_->WaitForStep(old, 7));
  EXPECT_THAT(Submit({"--continue", old, "--set", "steps=20"}).errors,
              HasSubstr("wanted a job that has ended"));
  EXPECT_THAT(Submit({"--continue", "runs/cancelled", "--set", "steps=2000000"}).errors,
              HasSubstr(old));
  EXPECT_EQ(service_->Trainyard({"cancel", old}).exit_code, 0);
  EXPECT_EQ(service_->WaitForEnd(old), "CANCELLED");
  const int done = int(service_->Job(old).at("checkpoints").back().at("step"));
  const std::string more = absl::StrCat("steps=", done + 3);
  const std::string id = Ended(GoOn({"--continue", old, "--set", more}));
  EXPECT_EQ(service_->Steps(id).at(0).at("step"), done + 1);
  EXPECT_EQ(Losses(id).size(), 3u);
}

TEST_F(Continue, NamesWhatChangesAndRefusesWhatWouldRepeatSamples) {
  TestJob job = Job("changed", 10);
  job.more = "labels: {a: b}";
  const std::string old = Ended(service_->Submit(job));
  for (const char* change : {"seed=8", "batch.sequence=32"}) {
    const std::string field = std::string(change).substr(0, std::string(change).find('='));
    const Finished refused = Submit({"--continue", old, "--set", "steps=12", "--set", change});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.errors, AllOf(HasSubstr(field + ": wanted "),
                                      HasSubstr("samples would be repeated or skipped"),
                                      HasSubstr("--allow " + field)));
  }
  const Finished noted = Submit({"--continue", old, "--set", "steps=12", "--set", "seed=8",
                                 "--allow", "seed", "--set", "optimizer.adamw.learning_rate=1e-3",
                                 "--set", "optimizer.schedule={cosine: {warmup_steps: 1}}"});
  ASSERT_EQ(noted.exit_code, 0) << noted;
  EXPECT_THAT(noted.errors, AllOf(HasSubstr("seed: 7 before, 8 now"),
                                  HasSubstr("learning_rate: 0.003 before, 0.001 now"),
                                  HasSubstr("steps: 10 before, 12 now; optimizer.schedule falls")));
  const std::string id(absl::StripSuffix(noted.output, "\n"));
  EXPECT_EQ(Losses(Ended(id)).size(), 2u);
  EXPECT_THAT(service_->Trainyard({"logs", id}).output, HasSubstr("run_changed"));
  // A client that does not compare is refused by the rank, before it takes the directory.
  TestJob direct = Job("direct", 14);
  direct.directory = "runs/changed";
  direct.more = absl::StrCat("continues: {job: ", id, "}");  // With the first seed.
  const std::string refused = service_->Submit(direct);
  EXPECT_EQ(service_->WaitForEnd(refused), "FAILED");
  EXPECT_THAT(service_->Job(refused).at("state_reason").get<std::string>(),
              HasSubstr("seed: wanted 8, as in the run"));
  EXPECT_THAT(ReadFile(Path("runs/changed/owner.json")).value(), HasSubstr(id));
}

TEST_F(Continue, OtherFilesOfDataOnlyWhereThatIsAllowed) {
  service_->Write("a.txt", std::string(20'000, 'a'));
  service_->Write("copy.txt", std::string(20'000, 'a'));
  service_->Write("b.txt", std::string(20'000, 'b'));
  TestJob job = Job("files", 10);
  job.data = "text: {path: a.txt}";
  const std::string old = Ended(service_->Submit(job));
  const std::string copied =
      Ended(GoOn({"--continue", old, "--set", "steps=12", "--set", "data.text.path=copy.txt"}));
  const std::string other =
      GoOn({"--continue", copied, "--set", "steps=14", "--set", "data.text.path=b.txt"});
  EXPECT_EQ(service_->WaitForEnd(other), "FAILED");
  EXPECT_THAT(service_->Job(other).at("state_reason").get<std::string>(),
              AllOf(HasSubstr("b.txt is not the file that attempt"), HasSubstr("--allow data")));
  const std::string allowed = Ended(GoOn({"--continue", copied, "--set", "steps=14", "--set",
                                          "data.text.path=b.txt", "--allow", "data"}));
  // What was read last is what is compared.
  Ended(GoOn({"--continue", allowed, "--set", "steps=16"}));
}

// Bug it must catch: the command line and the rank abort on a recorded job that is not legal, as
// after damage, or of a release with other limits.
TEST_F(Continue, ARecordedJobThatIsNotLegalIsNamedAndPassedOver) {
  TestJob job = Job("illegal", 10);
  Ended(service_->Submit(job));
  const std::string record = Path("runs/illegal/epoch-1/job.json");
  nlohmann::json json = nlohmann::json::parse(ReadFile(record).value());
  json.at("job").at("model").at("architecture").at("layers") = 0;
  ASSERT_TRUE(WriteFileAtomic(record, json.dump()).ok());
  job.steps = 12;
  const std::string spec = service_->Write("illegal.yaml", job.Text());
  const std::string id = Ended(GoOn({spec, "--continue", "runs/illegal"}));
  EXPECT_EQ(Losses(id).size(), 2u);
  EXPECT_THAT(service_->Trainyard({"logs", id}).output, HasSubstr("recorded_job_unusable"));
}

// Bug it must catch: a take-over that a kill leaves half done, or a run that begins again.
TEST_F(Continue, ThroughKillsInTheMiddle) {
  const std::string old = Ended(service_->Submit(Job("killed", 10)));
  const std::string id = GoOn({"--continue", old, "--set", "steps=20", "--set", "max_restarts=50"});
  pid_t last = -1;
  for (int kills = 0; kills < 4; ++kills) {
    // Each attempt is killed at its beginning, which is when the directory passes.
    WaitUntil([&] {
      const std::vector<Found> trainers = service_->Trainers(id);
      const pid_t found = trainers.empty() ? last : trainers.front().pid;
      if (found != last) Kill(found, SIGKILL);
      return std::exchange(last, found) != found || service_->State(id) == "SUCCEEDED";
    });
  }
  Ended(id);
  ExpectTheRestOfTheWhole(id, 10);
  EXPECT_EQ(service_->Digest("runs/killed"), service_->Digest("runs/whole"));
}

TEST_F(Continue, OfTwoThatContinueOneDirectoryOneIsRefusedByName) {
  Ended(service_->Submit(Job("raced", 10)));
  const std::vector<std::string> words = {"--continue", "runs/raced", "--set", "steps=1000000"};
  const std::string first = GoOn(words);
  const Finished second = Submit(words);
  EXPECT_EQ(second.exit_code, 1);
  // What is refused depends on whether the directory has passed to the first job meanwhile.
  EXPECT_THAT(second.errors,
              AnyOf(HasSubstr("which job " + first + " is using"),
                    HasSubstr("wanted a job that has ended, found " + first + ", which is ")));
  EXPECT_EQ(service_->Trainyard({"cancel", first}).exit_code, 0);
  EXPECT_EQ(service_->WaitForEnd(first), "CANCELLED");
}

TEST_F(Continue, ARunOfATrainerAloneAndWhatItRefusesItself) {
  const auto alone = [](const TestJob& job, std::vector<std::string> words = {}) {
    words.insert(words.begin(), service_->Write(job.name + ".yaml", job.Text()));
    return service_->Run("trainyard-trainer", words);
  };
  TestJob job = Job("alone", 10);
  ASSERT_EQ(alone(job).exit_code, 0);
  job.steps = 15;
  TestJob other = job;
  other.more = "validation: null";
  for (const auto& [from, to] :
       {std::pair("seed: 7", "seed: 8"), std::pair("sequence: 64", "sequence: 32")}) {
    std::string text = job.Text();
    text.replace(text.find(from), std::string(from).size(), to);
    const std::string spec = service_->Write("other.yaml", text);
    const Finished refused = service_->Run("trainyard-trainer", {spec});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.errors, HasSubstr("samples would be repeated or skipped"));
  }
  TestJob faster = job;
  faster.adamw = "learning_rate: 1e-3";
  const Finished noted = alone(faster);
  EXPECT_EQ(noted.exit_code, 0);
  EXPECT_THAT(noted.errors, HasSubstr("learning_rate: 0.003 before, 0.001 now"));
  const std::string id = Ended(GoOn({"--continue", "runs/alone", "--set", "steps=17"}));
  EXPECT_EQ(service_->Steps(id).at(0).at("step"), 16);
  EXPECT_THAT(alone(job).errors, HasSubstr("belongs to job " + id));
}

}  // namespace
}  // namespace trainyard::testing
