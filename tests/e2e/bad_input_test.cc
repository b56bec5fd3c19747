// Proves that everything wrong with a job is said where the user looks: in the spec's errors with
// field and line before anything starts, or as the reason of a job that failed while starting, and
// that no such job disturbs the next one.

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BadInput : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { service_ = new Service({.workers = 2, .devices_per_worker = 1}); }
  static void TearDownTestSuite() {
    delete service_;
    service_ = nullptr;
  }

  // What `submit` answers to a good spec with one text replaced.
  Finished SubmitWith(const std::string& good, const std::string& bad) {
    const std::string text = TestJob().Text();
    EXPECT_THAT(text, HasSubstr(good));
    return service_->Trainyard(
        {"submit", service_->Write("bad.yaml", absl::StrReplaceAll(text, {{good, bad}}))});
  }

  void ExpectRefused(const std::string& good, const std::string& bad, const std::string& message) {
    const Finished refused = SubmitWith(good, bad);
    EXPECT_EQ(refused.exit_code, 1) << refused;
    EXPECT_EQ(refused.output, "");
    EXPECT_THAT(refused.errors, HasSubstr(message));
  }

  // Submits a job that must fail before its first step, and returns the reason.
  std::string FailsInStarting(const TestJob& job) {
    const std::string id = service_->Submit(job);
    EXPECT_EQ(service_->WaitForEnd(id), "FAILED");
    EXPECT_EQ(service_->Step(id), 0u);
    EXPECT_EQ(service_->Job(id).at("restarts"), 0);
    return service_->Job(id).value("state_reason", "");
  }

  static Service* service_;
};
Service* BadInput::service_ = nullptr;

TEST_F(BadInput, SpecErrorsNameLineFieldAndNearestLegalValue) {
  ExpectRefused("steps: 20", "stesp: 20", ":7: stesp: unknown field; did you mean 'steps'?");
  ExpectRefused("llama3-8b", "llama3-8", "model.preset: ");
  ExpectRefused("llama3-8b", "llama3-8", "llama3-8b");
  ExpectRefused("global: 4", "global: 5", ":4: batch.global: ");
  ExpectRefused("global: 4", "global: 5", "nearest");
  ExpectRefused("micro: 2", "micro: 0", "batch.micro: ");
  ExpectRefused("hidden: 32", "hidden: 0", "model.overrides.hidden: ");
  ExpectRefused("layers: 2", "layers: 100000", "model.overrides.layers: ");
  ExpectRefused("sequence: 64", "sequence: 65", "batch.sequence: ");
  ExpectRefused("steps: 20", "steps: 0", ":7: steps: ");
  ExpectRefused("synthetic: {}", "text: {path: ../../etc/passwd}", "data.text.path: ");
  ExpectRefused("synthetic: {}", "text: {path: a}, synthetic: {}",
                ":5: data: wanted one of synthetic, text, indexed, arrays, blend, chat, found "
                "synthetic and text");
  ExpectRefused("devices: 1", "devices: 3", ":4: batch.global: ");
  ExpectRefused("name: e2e", "name: E2E", "name: ");
}

TEST_F(BadInput, AllErrorsOfASpecComeAtOnce) {
  const Finished refused = SubmitWith("steps: 20", "steps: 0\npriority: 5000");
  EXPECT_THAT(refused.errors, AllOf(HasSubstr("steps: "), HasSubstr("priority: ")));
  const Finished unreadable = SubmitWith("steps: 20", "steps: many\npriority: 5000");
  EXPECT_THAT(unreadable.errors, AllOf(HasSubstr("steps: "), HasSubstr("priority: ")));
}

TEST_F(BadInput, BrokenYamlIsRefusedWithItsLine) {
  ExpectRefused("steps: 20", "steps: [20", "not valid YAML: line ");
}

TEST_F(BadInput, ASpecThatIsValidIsNotStoredByValidateOnly) {
  const Finished valid = service_->Trainyard(
      {"submit", service_->Write("good.yaml", TestJob{.name = "not-stored"}.Text()),
       "--validate-only"});
  EXPECT_EQ(valid.exit_code, 0) << valid;
  EXPECT_THAT(service_->Trainyard({"list"}).output, ::testing::Not(HasSubstr("not-stored")));
}

TEST_F(BadInput, AMissingDataFileFailsTheJobNamingIt) {
  EXPECT_THAT(FailsInStarting({.name = "missing", .data = "text: {path: nowhere.txt}"}),
              HasSubstr("nowhere.txt"));
}

TEST_F(BadInput, APathOutsideTheRootsIsRefusedWithThem) {
  ExpectRefused("synthetic: {}", "text: {path: /etc/passwd}",
                "data.text.path: wanted a path below a root of a worker, found '/etc/passwd'; "
                "nearest one below " +
                    service_->directory());
}

TEST_F(BadInput, ATruncatedDataFileFailsTheJobNamingIt) {
  std::string text;
  for (int i = 0; i < 500; ++i) absl::StrAppend(&text, "Some words of paragraph ", i, ".\n\n");
  const Finished made =
      service_->Run("trainyard-tokenize", {service_->Write("words.txt", text), "words"});
  ASSERT_EQ(made.exit_code, 0) << made;
  const std::string id =
      service_->Submit({.name = "whole", .steps = 2, .data = "indexed: {prefix: words}"});
  EXPECT_EQ(service_->WaitForEnd(id), "SUCCEEDED");
  std::filesystem::resize_file(service_->directory() + "/words.bin", 1000);
  EXPECT_THAT(FailsInStarting({.name = "truncated", .data = "indexed: {prefix: words}"}),
              HasSubstr("words.bin"));
}

TEST_F(BadInput, ACheckpointOfAnotherModelFailsTheJobNamingIt) {
  const std::string id = service_->Submit(
      {.name = "small", .steps = 2, .checkpoint_every = 2, .directory = "runs/small"});
  EXPECT_EQ(service_->WaitForEnd(id), "SUCCEEDED");
  const std::string checkpoint = service_->Job(id).at("checkpoints")[0].at("path");
  EXPECT_THAT(FailsInStarting({.name = "larger", .hidden = 64, .more = "init_from: " + checkpoint}),
              AllOf(HasSubstr("found bad input: init_from: " + checkpoint), HasSubstr("hidden")));
}

TEST_F(BadInput, AModelBeyondTheDevicesMemoryFailsTheJobAtOnceAndLeavesItsDirectoryFree) {
  const TestJob fits{.name = "huge", .steps = 2, .checkpoint_every = 2, .directory = "runs/huge"};
  TestJob huge = fits;
  huge.model = "preset: llama3-70b, overrides: {layers: 200}";
  EXPECT_THAT(FailsInStarting(huge),
              AllOf(HasSubstr("found bad input: memory: wanted "), HasSubstr("TiB"),
                    HasSubstr("parallelism.tensor more than 1")));
  EXPECT_EQ(service_->WaitForEnd(service_->Submit(fits)), "SUCCEEDED");
}

TEST_F(BadInput, AnotherJobsCheckpointDirectoryIsRefused) {
  const std::string id = service_->Submit(
      {.name = "first", .steps = 2, .checkpoint_every = 2, .directory = "runs/shared"});
  EXPECT_EQ(service_->WaitForEnd(id), "SUCCEEDED");
  EXPECT_THAT(
      FailsInStarting(
          {.name = "second", .steps = 2, .checkpoint_every = 2, .directory = "runs/shared"}),
      AllOf(HasSubstr("found bad input: checkpoint.directory: "), HasSubstr("runs/shared")));
  EXPECT_EQ(service_->Trainyard({"checkpoint", "verify", "runs/shared"}).exit_code, 0);
}

TEST_F(BadInput, MoreDevicesThanThereAreWaitWithTheReasonUntilCancelled) {
  const std::string text = absl::StrReplaceAll(
      TestJob{.name = "wide"}.Text(), {{"devices: 1", "devices: 4"}, {"global: 4", "global: 8"}});
  const Finished submitted = service_->Trainyard({"submit", service_->Write("wide.yaml", text)});
  ASSERT_EQ(submitted.exit_code, 0) << submitted;
  const std::string id = submitted.output.substr(0, submitted.output.find('\n'));
  ASSERT_TRUE(WaitUntil([&] { return service_->Job(id).value("state_reason", "") != ""; }));
  EXPECT_EQ(service_->State(id), "QUEUED");
  EXPECT_THAT(service_->Job(id).value("state_reason", ""), AllOf(HasSubstr("4"), HasSubstr("2")));
  EXPECT_EQ(service_->Trainyard({"cancel", id}).exit_code, 0);
  EXPECT_EQ(service_->Trainyard({"watch", id}).exit_code, 3);
  EXPECT_EQ(service_->State(id), "CANCELLED");
}

TEST_F(BadInput, AJobWhoseLossIsNotFiniteFailsAndSaysSo) {
  // Decay of ten times the weight per step makes weights grow ninefold until they overflow.
  TestJob job{.name = "overflow", .steps = 200};
  const std::string text = absl::StrReplaceAll(
      job.Text(),
      {{"adamw: {learning_rate: 3e-3}", "adamw: {learning_rate: 10, weight_decay: 1}"}});
  const Finished watched =
      service_->Trainyard({"submit", service_->Write("overflow.yaml", text), "--watch"});
  EXPECT_EQ(watched.exit_code, 3) << watched;
  EXPECT_THAT(watched.errors, HasSubstr("not finite"));
}

TEST(RankThatDies, EndsTheJobAfterThreeRestartsNamingRankMachineAndSignal) {
  // A trainer that is killed before its first step, whenever it is started.
  const std::string directory = ::testing::TempDir();
  const std::string trainer = absl::StrCat(directory, "/dying-trainer-", getpid());
  {
    std::ofstream script(trainer);
    script << "#!/bin/sh\n[ \"$1\" = --measure ] && exec " << std::getenv("TRAINYARD_BIN")
           << "/trainyard-trainer \"$@\"\nkill -9 $$\n";
  }
  chmod(trainer.c_str(), 0755);
  {
    Service service(
        {.workers = 1, .devices_per_worker = 1, .worker_flags = {"--trainer", trainer}});
    const std::string id = service.Submit({.name = "dies"});
    EXPECT_EQ(service.WaitForEnd(id), "FAILED");
    const auto job = service.Job(id);
    EXPECT_EQ(job.at("restarts"), 3);
    const auto worker = nlohmann::json::parse(service.Trainyard({"workers", "-o", "jsonl"}).output);
    char hostname[256] = {};
    ASSERT_EQ(gethostname(hostname, sizeof(hostname) - 1), 0);
    EXPECT_THAT(
        job.value("state_reason", ""),
        HasSubstr(absl::StrCat("rank 0 on ", hostname, " (worker ",
                               worker.at("id").get<std::string>(), ") was killed by signal 9")));
  }
  std::filesystem::remove(trainer);
}

}  // namespace
}  // namespace trainyard::testing
