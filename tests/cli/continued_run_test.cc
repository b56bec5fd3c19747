// Proves what `submit --continue` refuses by itself, before it asks the controller to take the job.

#include "cli/continued_run.h"

#include <gmock/gmock.h>

#include <sstream>

#include "cli/command_line.h"
#include "cli/verbs/verbs.h"
#include "tests/cli/fake_controller.h"

namespace trainyard::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ContinuedRunTest : public ::testing::Test {
 protected:
  // "j-1" is an ended job of 10 steps.
  ContinuedRunTest() {
    v1::Job& job = controller_.job;
    job.set_id("j-1");
    job.set_state(v1::JOB_STATE_SUCCEEDED);
    job.add_checkpoints()->set_step(10);
    v1::JobSpec& spec = *job.mutable_spec();
    spec.set_name("run");
    v1::Architecture& model = *spec.mutable_model()->mutable_architecture();
    model.set_family("llama");
    model.set_layers(1);
    model.set_hidden(8);
    model.set_ffn(16);
    model.set_heads(2);
    model.set_kv_heads(2);
    model.set_vocab(256);
    model.set_max_seq(16);
    spec.mutable_batch()->set_global(1);
    spec.mutable_batch()->set_micro(1);
    spec.mutable_batch()->set_sequence(8);
    spec.mutable_data()->mutable_synthetic();
    spec.mutable_optimizer()->mutable_adamw()->set_learning_rate(1e-3);
    spec.set_steps(10);
    spec.mutable_checkpoint()->set_directory("runs/a");
    controller_.submit = [this](const v1::SubmitJobRequest& asked, v1::SubmitJobResponse& answer) {
      submitted_ = asked.spec();
      answer.mutable_job()->set_id("j-2");
      return grpc::Status::OK;
    };
  }
  int Continue(std::vector<std::string> sets, const std::string& job = "j-1") {
    std::vector<std::string> words = {"submit", "--continue", job, "--set", "steps=20"};
    for (std::string& set : sets) {
      words.push_back("--set");
      words.push_back(std::move(set));
    }
    out_.str("");
    err_.str("");
    submitted_.Clear();
    Output output(out_, err_, Terminal());
    return RunCommandLine(Verbs(), words,
                          {.controller = controller_.address(), .binary_directory = "/x"}, output);
  }
  v1::Model& model() { return *controller_.job.mutable_spec()->mutable_model(); }

  v1::JobSpec submitted_;
  std::ostringstream out_, err_;
  FakeController controller_;
};

// Bug it must catch: whoever names another model to begin with, or one that does not exist, is told
// in a note at most, and the run trains its own parameters for days.
TEST_F(ContinuedRunTest, AnotherModelToImportIsRefused) {
  EXPECT_EQ(Continue({}), 0) << err_.str();
  EXPECT_EQ(submitted_.steps(), 20u);
  EXPECT_EQ(Continue({"model.import=/nowhere"}), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("--set model.import=/nowhere: model.import: wanted none"),
                                HasSubstr("found \"/nowhere\""),
                                HasSubstr("the run goes on with its own parameters")));
  EXPECT_FALSE(submitted_.has_model()) << "nothing was sent";

  model().set_import("/models/first");
  EXPECT_EQ(Continue({"model.import=/models/other"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("model.import: wanted \"/models/first\", as in the run"));
  EXPECT_FALSE(submitted_.has_model());
}

// Bug it must catch: what is wrong besides is told one by one, each after the other is mended.
TEST_F(ContinuedRunTest, AllThatIsRefusedIsToldAtOnce) {
  EXPECT_EQ(Continue({"model.import=/nowhere", "seed=8", "steps=9"}), 1);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("steps: wanted more than 10"), HasSubstr("model.import: wanted none"),
                    HasSubstr("seed: wanted 0, as in the run")));
}

// Bug it must catch: two whole sections as JSON, in which nobody finds the difference.
TEST_F(ContinuedRunTest, AnotherOptimizerIsRefusedByItsName) {
  EXPECT_EQ(Continue({"optimizer.lion.learning_rate=1e-4"}), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("optimizer: wanted adamw, as in the run that the job "
                                          "continues, found lion; "),
                                Not(HasSubstr("{"))));
}

// The directory may be gone since: nothing is read from it.
TEST_F(ContinuedRunTest, TheRunsOwnImportOrNoneIsTaken) {
  model().set_import("/gone");
  EXPECT_EQ(Continue({}), 0) << err_.str();
  EXPECT_EQ(submitted_.model().import(), "/gone");
  EXPECT_EQ(Continue({"model.import=/gone"}), 0) << err_.str();
  EXPECT_THAT(err_.str(), Not(HasSubstr("model.import")));
  EXPECT_EQ(Continue({"model.import=null"}), 0) << err_.str();
  EXPECT_EQ(submitted_.model().import(), "");
}

// Bug it must catch: the job is taken, waits for devices, and fails at its start.
TEST_F(ContinuedRunTest, AJobWhoseRunAnotherJobHasIsRefusedWithThatJobsName) {
  v1::Job& second = controller_.others["j-2"] = controller_.job;
  second.set_id("j-2");
  second.mutable_spec()->mutable_continues()->set_job("j-1");
  v1::Job& third = controller_.others["j-3"] = second;
  third.set_id("j-3");
  third.mutable_spec()->mutable_continues()->set_job("j-2");
  controller_.job.set_continued_by("j-2");
  second.set_continued_by("j-3");
  EXPECT_EQ(Continue({}), 1);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("the job that has the run, which is j-3, found j-1"),
                    HasSubstr("has passed on"), HasSubstr("trainyard submit --continue j-3")));
  EXPECT_FALSE(submitted_.has_model()) << "nothing was sent";
  EXPECT_EQ(Continue({}, "j-3"), 0) << err_.str();

  // A job that was refused has no checkpoint, and has taken over nothing.
  v1::Job& refused = controller_.others["j-4"] = second;
  refused.set_id("j-4");
  refused.set_state(v1::JOB_STATE_FAILED);
  refused.clear_checkpoints();
  refused.clear_continued_by();
  EXPECT_EQ(Continue({}, "j-4"), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("which is j-3, found j-4"),
                                HasSubstr("ended before it had taken over the run")));
}

}  // namespace
}  // namespace trainyard::cli
