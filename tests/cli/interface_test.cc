// Freezes what others' scripts rely on: the verbs, their arguments and options. A change here is a
// change of the interface; old names stay.

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/command_line.h"
#include "cli/completion.h"
#include "cli/verbs/verbs.h"

namespace trainyard::cli {
namespace {

std::string Interface() {
  std::string text;
  for (const Verb& verb : Verbs()) {
    absl::StrAppend(&text, verb.name);
    for (const Positional& positional : verb.positionals) {
      absl::StrAppend(&text, positional.required ? absl::StrCat(" ", positional.name)
                                                 : absl::StrCat(" [", positional.name, "]"));
    }
    for (const Option& option : verb.AllOptions()) {
      absl::StrAppend(&text, " ", option.letter.empty() ? "" : option.letter + ",", option.name,
                      option.value.empty() ? "" : "=", option.value);
      if (!option.initial.empty()) absl::StrAppend(&text, "(", option.initial, ")");
    }
    text += "\n";
  }
  return text;
}

TEST(Interface, TheVerbsAndTheirOptionsStay) {
  const std::string kController = " --controller=ADDR --token-file=FILE --authority=FILE",
                    kFormats = " -o,--output=FORMAT(table)", kQuiet = " -q,--quiet",
                    kAll = kController + kFormats + kQuiet;
  EXPECT_EQ(
      Interface(),
      "up --workers=N(1) --devices-per-worker=M --state=DIR(.trainyard) --root=DIR "
      "--listen=ADDR(127.0.0.1:7070) --metrics-listen=ADDR(127.0.0.1:7071) --patience=SECONDS" +
          kQuiet +
          "\n"
          "submit [SPEC] --set=PATH=VALUE --continue=JOB_OR_DIR --allow=FIELD -w,--watch "
          "--scale-to=N --validate-only --namespace=NAME" +
          kAll +
          "\n"
          "get JOB" +
          kAll +
          "\n"
          "list --state=STATE --limit=N(100) --namespace=NAME" +
          kAll +
          "\n"
          "cancel JOB --reason=TEXT" +
          kAll +
          "\n"
          "watch JOB" +
          kAll +
          "\n"
          "logs JOB --rank=R -f,--follow" +
          kAll +
          "\n"
          "events JOB" +
          kAll +
          "\n"
          "steps JOB --after=STEP(0) -f,--follow --plot" +
          kAll +
          "\n"
          "export-steps JOB --tensorboard=DIR -f,--follow" +
          kController + kQuiet +
          "\n"
          "workers" +
          kAll +
          "\n"
          "health --worker=DIR" +
          kController + kQuiet +
          "\n"
          "models [NAME] --fields" +
          kFormats + kQuiet +
          "\n"
          "flops MODEL --sequence=S --convention=C(exact) --task=TASK(pretrain) "
          "--tokens-per-second=T --precision=P(BF16) --devices=N(1)" +
          kFormats + kQuiet +
          "\n"
          "recipes [NAME] --recipes=DIR" +
          kFormats + kQuiet +
          "\n"
          "generate CHECKPOINT --prompt=TEXT --prompts=FILE --chat=TEXT --chats=FILE --system=TEXT "
          "--format=NAME --date=DATE --batch=N --out=FILE "
          "--tokens=N(200) --temperature=T(0.8) --top-k=K(0) --top-p=P(1) --min-p=P(0) --stop=TEXT "
          "--seed=S(1) --window=N --device=NAME(cpu) --tensor=N(1)\n"
          "evaluate CHECKPOINT --data=FILE --field=NAME(text) --chats=FILE --format=NAME "
          "--date=DATE --choices=FILE --window=N --device=NAME(cpu) --tensor=N(1)\n"
          "import DIR --to=CKPT --base=DIR --ignore=KEY" +
          kFormats + kQuiet +
          "\n"
          "export CKPT --to=DIR --dtype=DTYPE --merge" +
          kFormats + kQuiet +
          "\n"
          "checkpoint list DIR" +
          kFormats + kQuiet +
          "\n"
          "checkpoint inspect DIR" +
          kFormats + kQuiet +
          "\n"
          "checkpoint digest DIR" +
          kFormats + kQuiet +
          "\n"
          "checkpoint verify DIR" +
          kFormats + kQuiet +
          "\n"
          "login CONTROLLER --token-file=FILE --authority=FILE -q,--quiet\n"
          "logout CONTROLLER\n"
          "whoami" +
          kController + kFormats +
          "\n"
          "token create NAME --role=ROLE(submitter) --namespace=NAME --valid=TIME --uses=N "
          "--hosts=PATTERN" +
          kAll +
          "\n"
          "token list" +
          kAll +
          "\n"
          "token revoke ID" +
          kAll +
          "\n"
          "audit --after=N --limit=N(100) --verify --since=NUMBER:HASH" +
          kAll +
          "\n"
          "completion\n");
}

class Command : public ::testing::Test {
 protected:
  int Trainyard(const std::vector<std::string>& words) {
    out_.str("");
    err_.str("");
    Output output(out_, err_, Terminal());
    return RunCommandLine(Verbs(), words, {.controller = "127.0.0.1:1", .binary_directory = "/x"},
                          output);
  }
  std::ostringstream out_, err_;
};

TEST_F(Command, EveryVerbHasHelpWithExamplesThatNameIt) {
  for (const Verb& verb : Verbs()) {
    SCOPED_TRACE(verb.name);
    std::vector<std::string> words = absl::StrSplit(verb.name, ' ');
    words.push_back("--help");
    EXPECT_EQ(Trainyard(words), 0);
    EXPECT_THAT(out_.str(), ::testing::HasSubstr("Usage: trainyard " + verb.name));
    EXPECT_THAT(out_.str(), ::testing::HasSubstr("Examples:"));
    EXPECT_FALSE(verb.examples.empty());
    for (const std::string& example : verb.examples) {
      EXPECT_THAT(example, ::testing::HasSubstr("trainyard " + verb.name));
    }
    for (const Option& option : verb.AllOptions()) {
      EXPECT_THAT(out_.str(), ::testing::HasSubstr(option.name));
      EXPECT_THAT(out_.str(), ::testing::HasSubstr(option.help));
    }
  }
}

TEST_F(Command, AnUnknownWordIsAUsageErrorThatNamesTheNearest) {
  EXPECT_EQ(Trainyard({"sumbit", "x"}), 2);
  EXPECT_EQ(err_.str(),
            "error: unknown verb 'sumbit'; did you mean 'submit'?; see 'trainyard --help'\n");
  EXPECT_EQ(Trainyard({"checkpoint", "digset", "x"}), 2);
  EXPECT_THAT(err_.str(),
              ::testing::HasSubstr("did you mean 'digest'?; see 'trainyard checkpoint --help'"));
  EXPECT_EQ(Trainyard({"submit", "x", "--wacth"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("did you mean '--watch'?"));
  EXPECT_EQ(Trainyard({"plan", "--help"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("unknown verb 'plan'"));
  EXPECT_EQ(Trainyard({}), 2);
  EXPECT_EQ(Trainyard({"get"}), 2);
  EXPECT_EQ(Trainyard({"list", "--limit", "-3"}), 2);
  EXPECT_EQ(Trainyard({"list", "--output", "xml"}), 2);
}

TEST_F(Command, AnArgumentThatCannotBeIsUsage) {
  EXPECT_EQ(Trainyard({"get", ""}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("JOB: wanted a name, found ''"));
  EXPECT_EQ(Trainyard({"up", "--state", ""}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--state: wanted a directory"));
  EXPECT_EQ(Trainyard({"logs", "j-1", "--rank", "4294967296"}), 2);
  EXPECT_THAT(err_.str(),
              ::testing::HasSubstr("error: --rank: wanted 0 to 65535, found '4294967296'; see"));
  EXPECT_EQ(Trainyard({"list", "--limit", "99999999999999999999"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("wanted 1 to 18446744073709551615, found"));
  EXPECT_EQ(Trainyard({"steps", "j-1", "--plot", "-o", "json"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--plot: wanted no --output"));
  EXPECT_EQ(Trainyard({"get", "j-\xFF"}), 2);
  EXPECT_EQ(err_.str(), "error: wanted UTF-8, found 'j-?'\n");
  EXPECT_EQ(Trainyard({"--nope"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("unknown option '--nope'"));
  for (const char* address : {"nowhere", ":7070", "host:", "host:http"}) {
    EXPECT_EQ(Trainyard({"list", "--controller", address}), 2) << address;
    EXPECT_THAT(err_.str(), ::testing::HasSubstr(absl::StrCat("--controller: address '", address)))
        << address;
  }
}

TEST_F(Command, ANumberOutOfItsOptionsRangeIsUsage) {
  EXPECT_EQ(Trainyard({"list", "--limit", "0"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--limit: wanted 1 to"));
  EXPECT_EQ(Trainyard({"flops", "llama3-8b", "--sequence", "0"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--sequence: wanted 1 to"));
  EXPECT_EQ(Trainyard({"up", "--workers", "65"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--workers: wanted 1 to 64, found '65'"));
  EXPECT_EQ(Trainyard({"up", "--devices-per-worker", "0"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--devices-per-worker: wanted 1 to 256"));
}

TEST_F(Command, FlopsOfAModelThatReadsNoTextAreExactAndOfItsSamples) {
  EXPECT_EQ(Trainyard({"flops", "dit-xl-2"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("condition"));
  EXPECT_EQ(Trainyard({"flops", "dit-xl-2", "--sequence", "128"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--sequence: wanted 256"));
  EXPECT_EQ(Trainyard({"flops", "dit-xl-2", "--convention", "megatron"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--convention: wanted exact"));
}

TEST_F(Command, FlopsTurnsASpeedIntoWhatAPagePrints) {
  const std::vector<std::string> speed = {"flops",
                                          "llama2-70b",
                                          "--sequence",
                                          "4096",
                                          "--devices",
                                          "8",
                                          "--convention",
                                          "nemo20",
                                          "--task",
                                          "lora",
                                          "--precision",
                                          "FP8",
                                          "--tokens-per-second"};
  const auto with = [&](std::vector<std::string> words, const std::string& value) {
    words.push_back(value);
    return Trainyard(words);
  };
  EXPECT_EQ(with(speed, "2621"), 0) << err_.str();
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("722.1 TFLOP/s a device, MFU 36.49%"));
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("10M tokens on 8 devices: 0.01 days (7m57s)"));
  for (const char* wrong : {"0", "-1", "fast", "nan", "inf"}) {
    EXPECT_EQ(with(speed, wrong), 2) << wrong;
    EXPECT_THAT(err_.str(), ::testing::HasSubstr("--tokens-per-second: wanted a number above 0"));
  }
  EXPECT_EQ(Trainyard({"flops", "llama3-8b", "--tokens-per-second", "1", "--precision", "F8"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--precision: wanted BF16 or FP8, found 'F8'"));
  EXPECT_EQ(Trainyard({"flops", "llama3-8b", "--precision", "F8"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--precision: wanted BF16 or FP8, found 'F8'"));
  EXPECT_EQ(Trainyard({"flops", "llama3-8b", "--task", "lora"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--convention: wanted one whose page has"));
  EXPECT_EQ(Trainyard({"flops", "llama3.1-405b", "--convention", "dgxc-llama31"}), 0);
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("the publisher's slip: groups / heads is 8/64"));
}

TEST_F(Command, FlopsRefusesOptionsWithoutEffect) {
  for (const auto& [option, value] : {std::pair("--precision", "FP8"), {"--devices", "1"}}) {
    EXPECT_EQ(Trainyard({"flops", "llama3-8b", option, value}), 2) << option;
    EXPECT_THAT(err_.str(), ::testing::HasSubstr(absl::StrCat(
                                option, ": wanted --tokens-per-second beside it, found none")));
  }
  const auto devices_with = [&](const char* convention) {
    return Trainyard({"flops", "llama3-8b", "--tokens-per-second", "1e4", "--devices", "8",
                      "--convention", convention});
  };
  EXPECT_EQ(devices_with("dgxc-llama31"), 0) << err_.str();
  EXPECT_EQ(devices_with("exact"), 2);
  EXPECT_THAT(err_.str(),
              ::testing::HasSubstr("--devices: wanted a convention whose page has a time "
                                   "to train, found exact"));
  EXPECT_EQ(devices_with("nemo20"), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("whose page counts 1024 devices"));
}

TEST_F(Command, UpsPatienceIsSomeTime) {
  EXPECT_EQ(Trainyard({"up", "--patience", "0"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--patience: wanted 1 to"));
}

TEST_F(Command, UpsRootsAreDirectories) {
  for (const std::string& root : {::testing::TempDir() + "/nowhere", std::string("/dev/null")}) {
    EXPECT_EQ(Trainyard({"up", "--root", root}), 2);
    EXPECT_THAT(err_.str(),
                ::testing::HasSubstr(absl::StrCat("--root: wanted a directory, found '", root)));
  }
}

TEST_F(Command, ListingCheckpointsSaysHowToVerifyThem) {
  EXPECT_EQ(Trainyard({"checkpoint", "list", "--help"}), 0);
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("trainyard checkpoint verify"));
}

TEST_F(Command, UpServesThisMachineAlone) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:7070", "example.org:7070"}) {
    EXPECT_EQ(Trainyard({"up", "--state", ::testing::TempDir() + "/up", "--listen", address}), 2);
    EXPECT_THAT(err_.str(),
                ::testing::AllOf(::testing::HasSubstr("--listen: wanted a loopback address"),
                                 ::testing::HasSubstr(address),
                                 ::testing::HasSubstr("start trainyard-controller")));
  }
}

TEST_F(Command, TheVersionIsAnAnswer) {
  EXPECT_EQ(Trainyard({"--version"}), 0);
  EXPECT_THAT(out_.str(), ::testing::StartsWith("trainyard "));
}

TEST_F(Command, GenerateSaysWhatItsOptionsCanBe) {
  for (const char* wrong : {"warm", "-1", "nan", "inf", "101"}) {
    EXPECT_EQ(Trainyard({"generate", "nowhere", absl::StrCat("--temperature=", wrong)}), 2)
        << wrong;
    EXPECT_THAT(err_.str(), ::testing::HasSubstr("--temperature: wanted 0 to 100, found")) << wrong;
  }
  for (const char* wrong : {"-1", "many", "1000001"}) {
    EXPECT_EQ(Trainyard({"generate", "nowhere", absl::StrCat("--tokens=", wrong)}), 2) << wrong;
    EXPECT_THAT(err_.str(), ::testing::HasSubstr(absl::StrCat(
                                "error: --tokens: wanted 0 to 1000000, found '", wrong, "'; see")));
  }
  EXPECT_EQ(Trainyard({"generate", "nowhere", "--chat", ""}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--chat: wanted a question, found an empty text"));
  EXPECT_EQ(Trainyard({"generate", "nowhere", "--prompts", "a", "--prompt", "b"}), 2);
  EXPECT_THAT(err_.str(),
              ::testing::HasSubstr("wanted at most one of --prompt, --prompts, --chat"));
  EXPECT_EQ(Trainyard({"generate", "nowhere", "--prompts", ""}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--prompts: wanted a file, found an empty text"));
  EXPECT_EQ(Trainyard({"generate", "nowhere", "--chat", "q", "--out", "f"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--out: wanted --prompt, --prompts or --chats"));
  EXPECT_EQ(Trainyard({"generate", "nowhere", "--tensor", "0"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--tensor: wanted 1 to 64"));
  EXPECT_EQ(Trainyard({"generate", "nowhere", "--batch", "0"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("--batch: wanted 1 to 1024"));
}

TEST_F(Command, ADirectoryWithoutCheckpointsIsNoAnswer) {
  EXPECT_EQ(Trainyard({"checkpoint", "list", "/usr"}), 1);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("wanted a job's checkpoint.directory, found /usr"));
  EXPECT_EQ(Trainyard({"checkpoint", "verify", "/usr"}), 1);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("no complete checkpoint in /usr"));
}

TEST_F(Command, AnAnswerThatCannotBeWrittenIsAFailure) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"models"},
                                                {"models", "-o", "json"},
                                                {"--version"},
                                                {"--help"},
                                                {"completion"}}) {
    std::ofstream full("/dev/full");
    Output output(full, err_, Terminal());
    err_.str("");
    EXPECT_EQ(RunCommandLine(Verbs(), words,
                             {.controller = "127.0.0.1:1", .binary_directory = "/x"}, output),
              1);
    EXPECT_EQ(err_.str(), "error: cannot write standard output: No space left on device\n");
  }
}

TEST_F(Command, CompletionKnowsEveryVerbAndOption) {
  const std::string script = BashCompletion(Verbs());
  for (const Verb& verb : Verbs()) {
    EXPECT_THAT(script, ::testing::HasSubstr("\"" + verb.name + "\") words="));
    for (const Option& option : verb.AllOptions())
      EXPECT_THAT(script, ::testing::HasSubstr(option.name));
  }
}

}  // namespace
}  // namespace trainyard::cli
