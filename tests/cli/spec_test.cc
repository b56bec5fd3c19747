// Proves that a spec's text becomes the message it says, and that everything wrong with one is
// reported at once, each with its place and exact field path.

#include "cli/spec.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstdlib>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/errors.h"
#include "cli/message_json.h"
#include "common/files.h"
#include "common/violations.h"
#include "models/arch/registry.h"
#include "train/config/aliases.h"
#include "train/config/parse.h"
#include "train/config/validate.h"
#include "train/data/blend.h"

namespace trainyard::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What `submit` would print as errors; empty if the spec can be read.
std::string Errors(const std::string& text, const std::vector<std::string>& sets = {}) {
  const auto document = SpecDocument::Parse("s.yaml", text, sets);
  if (!document.ok()) return std::string(document.status().message());
  return std::string(document->Explain(document->ToProto().status()).message());
}

v1::JobSpec Read(const std::string& text, const std::vector<std::string>& sets = {}) {
  const auto document = SpecDocument::Parse("s.yaml", text, sets);
  EXPECT_TRUE(document.ok()) << document.status();
  if (!document.ok()) return {};
  const auto spec = document->ToProto();
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : v1::JobSpec();
}

constexpr char kWhole[] = R"(
name: llama-tiny
model: {preset: llama3-8b, overrides: {layers: 4, norm_eps: 1e-6, tied: true}}
precision: BF16
parallelism: {zero: ZERO_NONE, tensor: 2}
batch:
  global: 32
  micro: 4
data: {text: {path: corpus.txt, tokenizer: BYTES, validation_fraction: 0.02}}
optimizer: {adamw: {learning_rate: 3e-4}, schedule: {cosine: {warmup_steps: 20}}, clip_norm: 0}
steps: 1e3
checkpoint: {directory: runs/a}
profile: {directory: traces, start_step: 5, ranks: [0, 3], nccl_trace: true}
priority: -5
max_restarts: 0
labels: {team: language, run: 7}
)";

TEST(Spec, EveryKindOfFieldIsRead) {
  const v1::JobSpec spec = Read(kWhole);
  EXPECT_EQ(spec.name(), "llama-tiny");
  EXPECT_EQ(spec.model().overrides().layers(), 4u);
  EXPECT_EQ(spec.model().overrides().norm_eps(), 1e-6);
  EXPECT_TRUE(spec.model().overrides().tied());
  EXPECT_FALSE(spec.model().overrides().has_hidden());
  EXPECT_EQ(spec.precision(), v1::PRECISION_BF16);
  EXPECT_EQ(spec.parallelism().zero(), v1::ZERO_NONE);
  EXPECT_EQ(spec.batch().global(), 32u);
  EXPECT_EQ(spec.data().text().path(), "corpus.txt");
  EXPECT_EQ(spec.optimizer().schedule().cosine().warmup_steps(), 20u);
  EXPECT_TRUE(spec.optimizer().has_clip_norm());
  EXPECT_EQ(spec.steps(), 1000u);
  EXPECT_THAT(spec.profile().ranks(), ElementsAre(0u, 3u));
  EXPECT_TRUE(spec.profile().nccl_trace());
  EXPECT_EQ(spec.priority(), -5);
  EXPECT_TRUE(spec.has_max_restarts());
  EXPECT_EQ(spec.labels().at("run"), "7");
}

TEST(Spec, ProtobufJsonIsReadBackToTheSameMessage) {
  for (const char* text : {kWhole, "profile: {directory: lists/none, start_step: 1}"}) {
    const v1::JobSpec spec = Read(text);
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(Read(ProtobufJson(spec)), spec));
  }
}

TEST(Spec, AnEmptyMappingAndNothingAreBothAnEmptyMessage) {
  EXPECT_TRUE(Read("data: {synthetic: {}}").data().has_synthetic());
  EXPECT_TRUE(Read("data:\n  synthetic:\n").data().has_synthetic());
}

TEST(Spec, AnEmptyListAndNothingAreBothAnEmptyList) {
  EXPECT_EQ(Read("profile: {ranks: []}").profile().ranks_size(), 0);
  EXPECT_EQ(Read("profile:\n  ranks:\n").profile().ranks_size(), 0);
}

// A list of messages, whose items have fields of their own.
TEST(Spec, DatasetsOfABlendReachTheController) {
  const std::string text =
      "data: {blend: {datasets: [{weight: 7e-1, prefix: a}, {path: b.txt, weight: 2}]}}";
  const v1::BlendData blend = Read(text).data().blend();
  ASSERT_EQ(blend.datasets_size(), 2);
  EXPECT_EQ(blend.datasets(0).weight(), 0.7);
  EXPECT_EQ(blend.datasets(0).prefix(), "a");
  EXPECT_EQ(blend.datasets(1).path(), "b.txt");
  const auto job = ParseJobConfig(ProtobufJson(Read(text)));
  ASSERT_TRUE(job.ok()) << job.status();
  const trainyard::BlendData& read = job->data.As<trainyard::BlendData>();
  ASSERT_EQ(read.datasets.size(), 2u);
  EXPECT_EQ(absl::StrCat(read.datasets[1].weight, read.datasets[1].path), "2b.txt");
  EXPECT_THAT(Errors("data: {blend: {datasets: {weight: 1}}}"),
              HasSubstr("data.blend.datasets: wanted a list of mappings, found a mapping"));
  EXPECT_THAT(Errors("data:\n  blend:\n    datasets:\n    - {weigth: 1, prefix: a}\n"),
              HasSubstr("s.yaml:3: data.blend.datasets[0].weigth: unknown field; did you mean"));
}

// A spec says `schedule`, whether or not the schedule has a value of the enum.
TEST(Spec, EveryScheduleReachesTheController) {
  for (const ScheduleKind& kind : AllSchedules()) {
    const v1::JobSpec spec = Read(absl::StrCat("parallelism: {schedule: ", kind.name, "}"));
    const auto job = ParseJobConfig(ProtobufJson(spec));
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->parallelism.schedule, &kind);
  }
}

// Calls back for each single value or list that a spec can have, with its path.
void ForEachField(
    const google::protobuf::Descriptor& message, const std::string& path,
    absl::FunctionRef<void(const google::protobuf::FieldDescriptor&, const std::string&)> visit) {
  for (int i = 0; i < message.field_count(); ++i) {
    const auto& field = *message.field(i);
    const std::string at = absl::StrCat(path, path.empty() ? "" : ".", field.name());
    if (field.message_type() == nullptr || field.is_repeated()) {
      visit(field, at);
    } else {
      ForEachField(*field.message_type(), at, visit);
    }
  }
}

constexpr char kGood[] = R"(
name: good
model: {preset: llama3-8b}
batch: {global: 4, micro: 1, sequence: 32}
data: {synthetic: {}}
optimizer: {adamw: {learning_rate: 1e-3}}
steps: 10
checkpoint: {directory: a}
validation: {every_steps: 1}
profile: {directory: p, start_step: 1})";

// The command line judges nothing itself. Bug it must catch: a value that train/config takes for
// readable and that the message cannot hold, of which nobody could say what is wrong.
TEST(Spec, TrainConfigFindsWhatTheMessageCannotHold) {
  int fields = 0, refused = 0;
  ForEachField(*v1::JobSpec::descriptor(), "",
               [&](const google::protobuf::FieldDescriptor&, const std::string& path) {
                 if (path.find("fields") != path.npos) return;  // Any text.
                 ++fields;
                 for (const char* value : {"-1",
                                           "1",
                                           "1.5",
                                           "+2",
                                           "1e3",
                                           "1e-3",
                                           "1e16",
                                           "1e19",
                                           ".5",
                                           "4294967296",
                                           "-2147483649",
                                           "1e30",
                                           "1e-400",
                                           "9223372036854775808",
                                           "18446744073709551616",
                                           "x",
                                           "''",
                                           "true",
                                           "null",
                                           "nan",
                                           "0x10",
                                           "[]",
                                           "[1]",
                                           "[-1]",
                                           "[4294967296]",
                                           "[x]",
                                           "[[1]]",
                                           "[null]",
                                           "{}",
                                           "{a: 1}",
                                           "{a: -1}",
                                           "{a: [1]}",
                                           "BF16",
                                           "\"a\\u00fc\""}) {
                   SCOPED_TRACE(absl::StrCat(path, "=", value));
                   std::vector<std::string> sets = {absl::StrCat(path, "=", value)};
                   if (absl::StartsWith(path, "model.architecture")) {
                     sets.insert(sets.begin(), "model={architecture: {family: qwen3_moe}}");
                   }
                   const auto document = SpecDocument::Parse("s.yaml", kGood, sets);
                   ASSERT_TRUE(document.ok()) << document.status();
                   const auto spec = document->ToProto();
                   if (spec.ok()) continue;
                   ++refused;
                   const auto about = [&](const FieldViolation& violation) {
                     return absl::StartsWith(path, violation.field) ||
                            absl::StartsWith(violation.field, path);
                   };
                   const auto violations = Violations::FromStatus(spec.status());
                   EXPECT_TRUE(std::any_of(violations.begin(), violations.end(), about))
                       << spec.status();
                 }
               });
  EXPECT_GT(fields, 80);
  EXPECT_GT(refused, 1000);
}

TEST(Spec, EveryFieldOfTheMessageCanBeSet) {
  using google::protobuf::FieldDescriptor;
  ForEachField(
      *v1::JobSpec::descriptor(), "", [](const FieldDescriptor& field, const std::string& path) {
        if (path.find("fields") != path.npos) return;  // FieldsOfOneFamilyGoIntoTheMap.
        SCOPED_TRACE(path);
        const bool number = field.cpp_type() != FieldDescriptor::CPPTYPE_STRING;
        const std::string one = field.enum_type() != nullptr ? field.enum_type()->value(1)->name()
                                : field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL ? "true"
                                : field.is_map()                                    ? "{a: b}"
                                : field.message_type() != nullptr                   ? "{}"
                                : path == "parallelism.schedule_name"               ? "GPIPE"
                                : number                                            ? "3"
                                                                                    : "text";
        const std::string value = field.is_repeated() && !field.is_map() ? "[" + one + "]" : one;
        std::vector<std::string> sets = {absl::StrCat(path, "=", value)};
        if (path == "profile.start_step") sets.push_back("steps=10");
        const v1::JobSpec spec = Read("{}", sets);
        const google::protobuf::Message* message = &spec;
        const std::vector<std::string> keys = absl::StrSplit(path, '.');
        for (size_t i = 0; i + 1 < keys.size(); ++i) {
          const auto* const section = message->GetDescriptor()->FindFieldByName(keys[i]);
          ASSERT_TRUE(message->GetReflection()->HasField(*message, section));
          message = &message->GetReflection()->GetMessage(*message, section);
        }
        const auto& reflection = *message->GetReflection();
        EXPECT_TRUE(field.is_repeated() ? reflection.FieldSize(*message, &field) == 1
                                        : reflection.HasField(*message, &field));
      });
}

struct BadInput {
  std::string text;
  std::string error;
};
class BadSpec : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadSpec, IsReportedWithPlacePathAndNearestLegalValue) {
  // What such a small spec lacks is reported, too.
  EXPECT_THAT(absl::StrCat("\n", Errors(GetParam().text)),
              HasSubstr(absl::StrCat("\n", GetParam().error)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadSpec,
    ::testing::Values(
        BadInput{"steps: 5\nstesp: 7", "s.yaml:2: stesp: unknown field; did you mean 'steps'?"},
        BadInput{"batch:\n  micro: 1\n  globl: 2",
                 "s.yaml:3: batch.globl: unknown field; did you mean 'global'?"},
        BadInput{"optimizer: {adamw: {learning_rat: 1}}",
                 "s.yaml:1: optimizer.adamw.learning_rat: unknown field; did you mean "
                 "'learning_rate'?"},
        BadInput{"batch: {colour: 2}",
                 "s.yaml:1: batch.colour: unknown field; known here: global, micro, sequence"},
        BadInput{"tensor_model_parallel_size: 2",
                 "s.yaml:1: tensor_model_parallel_size: unknown field; here it is "
                 "parallelism.tensor"},
        BadInput{"num_layers: 3",
                 "s.yaml:1: num_layers: unknown field; here it is model.overrides.layers"},
        BadInput{"lr: 3", "s.yaml:1: lr: unknown field; here it is optimizer.adamw.learning_rate"},
        BadInput{"batch: {micro: -4}",
                 "s.yaml:1: batch.micro: wanted 1 to 1000000, found -4; nearest 1"},
        BadInput{"batch: {micro: 1.5}",
                 "s.yaml:1: batch.micro: wanted a whole number, found \"1.5\"; nearest 2"},
        BadInput{"batch: {micro: many}",
                 "s.yaml:1: batch.micro: wanted a whole number, found \"many\""},
        BadInput{"batch: {micro: 4294967296}",
                 "s.yaml:1: batch.micro: wanted 1 to 1000000, found 4294967296; nearest 1000000"},
        BadInput{"batch: {micro: 1e30}",
                 "s.yaml:1: batch.micro: wanted a whole number, found \"1e30\""},
        BadInput{"priority: 3000000000",
                 "s.yaml:1: priority: wanted -1000 to 1000, found 3000000000; nearest 1000"},
        BadInput{"steps: 99999999999999999999",
                 "s.yaml:1: steps: wanted a whole number, found \"99999999999999999999\""},
        BadInput{"optimizer: {clip_norm: .nan}",
                 "s.yaml:1: optimizer.clip_norm: wanted a finite number, found \".nan\""},
        BadInput{"optimizer: {clip_norm: inf}",
                 "s.yaml:1: optimizer.clip_norm: wanted a finite number, found \"inf\""},
        BadInput{"model: {overrides: {tied: maybe}}",
                 "s.yaml:1: model.overrides.tied: wanted true or false, found \"maybe\""},
        BadInput{"precision: BF61",
                 "s.yaml:1: precision: wanted one of BF16, F32, F64, FP8_DELAYED, "
                 "FP8_CURRENT, FP8_BLOCKWISE, FP8_ROWWISE, found \"BF61\"; nearest BF16"},
        BadInput{"parallelism: {reduction: UNSPECIFIED}",
                 "s.yaml:1: parallelism.reduction: wanted one of F32, BF16, found \"UNSPECIFIED\""},
        BadInput{"batch: 32", "s.yaml:1: batch: wanted a mapping, found a single value"},
        BadInput{"batch: [1, 2]", "s.yaml:1: batch: wanted a mapping, found a list"},
        BadInput{"steps: {a: 1}", "s.yaml:1: steps: wanted a whole number, found a mapping"},
        BadInput{"steps:", "s.yaml:1: steps: wanted a whole number, found null"},
        BadInput{"profile: {ranks: 3}",
                 "s.yaml:1: profile.ranks: wanted a list of whole numbers, found \"3\""},
        BadInput{"profile: {ranks: {a: 1}}",
                 "s.yaml:1: profile.ranks: wanted a list of whole numbers, found a mapping"},
        BadInput{"profile:\n  ranks: [a]",
                 "s.yaml:2: profile.ranks[0]: wanted a whole number, found \"a\"\n"},
        BadInput{"profile:\n  ranks: [0, [1]]",
                 "s.yaml:2: profile.ranks[1]: wanted a whole number, found a list\n"},
        BadInput{"devices: 2\nprofile:\n  ranks: [0, x, -1]",
                 "s.yaml:3: profile.ranks[1]: wanted a whole number, found \"x\"\n"},
        BadInput{"devices: 2\nprofile:\n  ranks: [0, x, -1]",
                 "s.yaml:3: profile.ranks[2]: wanted 0 to 1, found -1; nearest 0"},
        BadInput{"steps: 50\nprofile: {start_step: 1e30}",
                 "s.yaml:2: profile.start_step: wanted a whole number from 1 to 50, found "
                 "\"1e30\"; nearest 50\n"},
        BadInput{"steps: 50\nprofile: {start_step: -1e30}",
                 "s.yaml:2: profile.start_step: wanted a whole number from 1 to 50, found "
                 "\"-1e30\"; nearest 1\n"},
        BadInput{"steps: 50\nprofile: {start_step: 2.7}",
                 "s.yaml:2: profile.start_step: wanted a whole number from 1 to 50, found "
                 "\"2.7\"; nearest 3\n"},
        BadInput{"profile: {start_step: 99999999999999999999}",
                 "s.yaml:1: profile.start_step: wanted a whole number from 1 to 1000000000, found "
                 "\"99999999999999999999\"; nearest 1000000000\n"},
        BadInput{"optimizer: {clip_norm: 1e-400}",
                 "s.yaml:1: optimizer.clip_norm: wanted 0 without a sign, or a number from "
                 "1.2e-38, as f32 has it, found \"1e-400\"\n"},
        BadInput{"labels: {a: {b: 1}}", "s.yaml:1: labels.a: wanted text, found a mapping"},
        BadInput{
            "data:\n  synthetic: {}\n  text: {path: a}",
            "s.yaml:1: data: wanted one of synthetic, text, indexed, arrays, blend, chat, found "
            "synthetic and text"},
        BadInput{"just words",
                 "s.yaml: wanted a job spec, fields as 'name: value', found a single "
                 "value"}));

TEST(Spec, AllViolationsComeAtOnceFirstThoseOfWhatCannotBeRead) {
  EXPECT_EQ(
      Errors("name: a\nbatch: {micro: x, global: 4, sequence: 8}\nsteps: -1\ndeterministic: x\n"
             "model: {preset: llama3-8b}\ndata: {synthetic: {}}\npriority: 5000\n"
             "optimizer: {adamw: {learning_rate: 1e-3}}\n"),
      "s.yaml:4: deterministic: wanted true or false, found \"x\"\n"
      "s.yaml:2: batch.micro: wanted a whole number, found \"x\"\n"
      "s.yaml:3: steps: wanted 1 to 1000000000, found -1; nearest 1\n"
      "s.yaml:7: priority: wanted -1000 to 1000, found 5000; nearest 1000");
}

TEST(Spec, BrokenYamlNamesItsLine) {
  EXPECT_THAT(Errors("name: a\nbatch: {micro: 1\nsteps: 2\n"),
              ::testing::StartsWith("s.yaml: not valid YAML: line 3"));
  EXPECT_THAT(Errors("name: a\nname: b\n"), HasSubstr("line 2"));
}

// docs/command_line.md publishes the alias table; it must be the one that messages use.
TEST(Spec, TheDocumentedAliasesAreThoseThatErrorsTranslate) {
  const auto page =
      ReadFile(std::string(std::getenv("TRAINYARD_SOURCE")) + "/docs/command_line.md");
  ASSERT_TRUE(page.ok()) << page.status();
  int aliases = 0;
  for (absl::string_view line : absl::StrSplit(*page, '\n')) {
    if (!absl::StartsWith(line, "| `")) continue;
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    const std::string ours = absl::StrReplaceAll(cells[2], {{" ", ""}, {"`", ""}});
    for (absl::string_view theirs : absl::StrSplit(cells[1], ',')) {
      EXPECT_EQ(OurNameFor(absl::StrReplaceAll(theirs, {{" ", ""}, {"`", ""}})), ours) << theirs;
      ++aliases;
    }
  }
  EXPECT_EQ(aliases, 76);
}

TEST(Set, ChangesAndAddsFieldsAsIfTheyWereWritten) {
  const v1::JobSpec spec =
      Read(kWhole, {"batch.global=64", "seed=9", "model.overrides={hidden: 256}",
                    "optimizer.adamw.beta1=0.8", "profile.ranks=[1]", "labels.run=8", "name="});
  EXPECT_EQ(spec.batch().global(), 64u);
  EXPECT_EQ(spec.batch().micro(), 4u);
  EXPECT_EQ(spec.seed(), 9u);
  EXPECT_EQ(spec.model().overrides().hidden(), 256u);
  EXPECT_FALSE(spec.model().overrides().has_layers());
  EXPECT_EQ(spec.optimizer().adamw().beta1(), 0.8);
  EXPECT_THAT(spec.profile().ranks(), ElementsAre(1u));
  EXPECT_EQ(spec.labels().at("run"), "8");
  EXPECT_EQ(spec.name(), "");
}

TEST(Set, TheLaterOneWins) { EXPECT_EQ(Read("steps: 1", {"steps=2", "steps=3"}).steps(), 3u); }

TEST(Set, ReplacesTheOtherChoice) {
  EXPECT_FALSE(Read(kWhole, {"optimizer.lion.learning_rate=1"}).optimizer().has_adamw());
  EXPECT_TRUE(Read(kWhole, {"data.synthetic={}"}).data().has_synthetic());
  EXPECT_EQ(Read("data: {synthetic: {}}", {"data.text.path=a"}).data().text().path(), "a");
  EXPECT_TRUE(Read("steps: 1", {"data.text.path=a", "data.synthetic={}"}).data().has_synthetic());
}

// Bug it must catch: an empty section in place of none, which then lacks what a section must have.
TEST(Set, NullRemovesWhatTheTextHas) {
  const v1::JobSpec spec = Read(kWhole, {"profile=null", "checkpoint=~", "seed=null", "steps=null",
                                         "labels.run=null", "parallelism.tensor=null"});
  EXPECT_FALSE(spec.has_profile());
  EXPECT_FALSE(spec.has_checkpoint());
  EXPECT_EQ(spec.steps(), 0u);
  EXPECT_THAT(spec.labels(), ElementsAre(::testing::Pair("team", "language")));
  EXPECT_EQ(spec.parallelism().tensor(), 0u);
  EXPECT_EQ(spec.parallelism().zero(), v1::ZERO_NONE);
  // Nor does it make the section that it looks for the field in.
  EXPECT_FALSE(Read("steps: 1", {"profile.ranks=null"}).has_profile());
  EXPECT_TRUE(Read(kWhole, {"profile=null", "profile.steps=2"}).profile().directory().empty());
  EXPECT_THAT(Errors(kWhole, {"profil=null"}),
              ::testing::StartsWith("--set profil=null: profil: unknown field"));
  EXPECT_THAT(Errors(kWhole, {"steps.x=null"}), ::testing::StartsWith("--set steps.x=null: steps"));
  EXPECT_THAT(Errors(kWhole, {"batch=null", "priority=x"}),
              HasSubstr("\n--set batch=null: batch.global: wanted 1 to 1000000, found 0"));
}

TEST(Set, ErrorsNameTheSet) {
  EXPECT_THAT(Errors(kWhole, {"batch.micro=x"}),
              ::testing::StartsWith(
                  "--set batch.micro=x: batch.micro: wanted a whole number, found \"x\"\n"));
  EXPECT_THAT(
      Errors(kWhole, {"bach.micro=1"}),
      ::testing::StartsWith("--set bach.micro=1: bach: unknown field; did you mean 'batch'?\n"));
  EXPECT_THAT(Errors(kWhole, {"profile.ranks=[0, x]"}),
              ::testing::StartsWith("--set profile.ranks=[0, x]: profile.ranks[1]: wanted a whole "
                                    "number, found \"x\"\n"));
}

// Bug it must catch: advice about a field that the user left alone, which leads back from there.
TEST(Set, ErrorsNameFirstWhatTheSetCouldBe) {
  const auto recipe =
      ReadFile(std::string(std::getenv("TRAINYARD_SOURCE")) + "/recipes/tiny-all-axes.yaml");
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto first_line = [&](const std::vector<std::string>& sets) {
    const auto document = SpecDocument::Parse("s.yaml", *recipe, sets);
    const auto job = ParseAndValidateJob(ProtobufJson(*document->ToProto()));
    const std::string message(document->Explain(job.status()).message());
    return message.substr(0, message.find('\n'));
  };
  EXPECT_EQ(first_line({"steps=5", "batch.micro=3"}),
            "--set batch.micro=3: batch.micro: wanted a size that goes with the others, found 3; "
            "nearest 2");
  EXPECT_THAT(first_line({"parallelism.tensor=3"}),
              ::testing::AllOf(::testing::StartsWith("--set parallelism.tensor=3: "),
                               ::testing::EndsWith(", found 3; nearest 4")));
  EXPECT_EQ(first_line({"devices=24"}),
            "--set devices=24: devices: wanted a size that goes with the others, found 24; "
            "nearest 32");
  // Nothing that goes with both.
  EXPECT_THAT(first_line({"parallelism.pipeline=3", "parallelism.tensor=3"}),
              ::testing::StartsWith("s.yaml:12: devices: wanted a multiple of"));
}

// Bug it must catch: the first of several in a section, blamed for what another one says.
TEST(Set, ErrorsNameTheSetOfTheFieldAndNotAnotherOneOfItsSection) {
  const auto line = [](const std::vector<std::string>& sets, absl::string_view field) {
    for (const absl::string_view line : absl::StrSplit(Errors("name: a", sets), '\n')) {
      if (absl::StrContains(line, absl::StrCat(": ", field, ": "))) return std::string(line);
    }
    return absl::StrCat("nothing about ", field);
  };
  EXPECT_THAT(line({"profile.directory=t", "profile.steps=x"}, "profile.steps"),
              ::testing::StartsWith("--set profile.steps=x: "));
  EXPECT_THAT(line({"batch.global=4", "batch={micro: x}"}, "batch.micro"),
              ::testing::StartsWith("--set batch={micro: x}: "));
  EXPECT_THAT(line({"batch.micro=4", "batch={micro: x}"}, "batch.micro"),
              ::testing::StartsWith("--set batch={micro: x}: "));
  // Absent: whoever made the section left it out.
  EXPECT_THAT(line({"profile.steps=x", "profile.ranks=[0]"}, "profile.directory"),
              ::testing::StartsWith("--set profile.steps=x: "));
}

TEST(Set, ErrorsNameTheSetThatMadeAMappingOfAValue) {
  EXPECT_THAT(Errors(kWhole, {"batch.micro.x=3"}),
              ::testing::StartsWith(
                  "--set batch.micro.x=3: batch.micro: wanted a whole number, found a mapping"));
}

TEST(Set, WithoutPathOrValueIsAUsageError) {
  for (const char* set : {"steps", "=5", "batch..micro=1"}) {
    const auto document = SpecDocument::Parse("s.yaml", "steps: 1", {set});
    ASSERT_FALSE(document.ok()) << set;
    EXPECT_EQ(ExitCode(document.status()), 2) << set;
  }
}

TEST(Spec, TheControllersViolationsGetTheirPlaceInTheText) {
  const auto document =
      SpecDocument::Parse("s.yaml", "name: a\nbatch:\n  global: 6\n", {"steps=0"});
  ASSERT_TRUE(document.ok());
  Violations violations;
  violations.Add("spec.batch.global", "a multiple of 4", 6, 8);
  violations.Add("steps", "x > 0", 0);
  violations.Add("batch.sequence", "x > 0", 0);
  violations.Add("data", "a source");
  EXPECT_EQ(document->Explain(violations.ToStatus()).message(),
            "s.yaml:3: batch.global: wanted a multiple of 4, found 6; nearest 8\n"
            "--set steps=0: steps: wanted x > 0, found 0\n"
            "s.yaml:2: batch.sequence: wanted x > 0, found 0\n"
            "s.yaml: data: wanted a source");
}

// A field of a family's table that the wire does not have could not be set by anybody.
TEST(Spec, EveryFieldOfEveryFamilyReachesTheController) {
  for (const Family& family : Families()) {
    for (const Field& field : FieldsOf(family.defaults)) {
      if (field.rule.fixed) continue;
      SCOPED_TRACE(absl::StrCat(family.name, " ", field.rule.name));
      const v1::JobSpec spec =
          Read("{name: a}",
               {absl::StrCat("model.architecture.family=", family.name),
                absl::StrCat("model.architecture.", field.rule.name, "=", TextOf(field.value))});
      const auto job = ParseJobConfig(ProtobufJson(spec));
      ASSERT_TRUE(job.ok()) << job.status();
      EXPECT_EQ(job->model.architecture->fields, (GivenFields{{field.rule.name, field.value}}));
    }
  }
}

// What only one family has travels in a map, as its text, and comes out as if typed.
TEST(Spec, FieldsOfOneFamilyGoIntoTheMap) {
  const std::string text =
      "{name: a, model: {architecture: {family: gpt_oss, layers: 2, window: 1e2, swiglu_limit: "
      "5}}}";
  const v1::JobSpec spec = Read(text, {"model.architecture.yarn_factor=4"});
  const v1::Architecture& architecture = spec.model().architecture();
  EXPECT_EQ(architecture.layers(), 2);
  EXPECT_EQ((std::map<std::string, std::string>(architecture.fields().begin(),
                                                architecture.fields().end())),
            (std::map<std::string, std::string>{
                {"window", "1e2"}, {"swiglu_limit", "5"}, {"yarn_factor", "4"}}));
  const auto job = ParseJobConfig(ProtobufJson(spec));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(
      job->model.architecture->fields,
      (GivenFields{{"layers", 2}, {"window", 100}, {"swiglu_limit", 5.0}, {"yarn_factor", 4.0}}));
}

TEST(Spec, AFieldStandsInTheMapOrBesideItAndNotInBoth) {
  for (const char* fields :
       {"window: 16, fields: {window: 8}", "fields: {window: 8}, window: 16"}) {
    EXPECT_THAT(Errors(absl::StrCat("name: a\nmodel: {architecture: {family: gpt_oss, layers: 2, ",
                                    fields, "}}"),
                       {}),
                ::testing::HasSubstr("s.yaml:2: model.architecture.fields.window: wanted the field "
                                     "once, here or as model.architecture.window, found both"))
        << fields;
  }
}

TEST(Spec, WhatTheControllerWritesIsUnknownAndNoMoreIsSaid) {
  const std::string errors = Errors(kWhole, {"format=1"});
  EXPECT_THAT(errors, ::testing::HasSubstr("format: unknown field"));
  EXPECT_THAT(errors, ::testing::Not(::testing::HasSubstr("must have")));
}

TEST(Set, OfTrainableReplacesFrozen) {
  const v1::JobSpec spec = Read("name: a\nfrozen: ['*a']", {"trainable=['*b']"});
  EXPECT_EQ(spec.frozen_size(), 0);
  ASSERT_EQ(spec.trainable_size(), 1);
  EXPECT_EQ(Read("name: a\ntrainable: ['*a']", {"frozen=['*b']"}).trainable_size(), 0);
}

TEST(Set, WithoutAValueRemovesAFieldOfOneFamily) {
  const std::string text = "{name: a, model: {preset: gpt-oss-20b, overrides: {window: 8}}}";
  EXPECT_EQ(Read(text, {}).model().overrides().fields().size(), 1u);
  EXPECT_EQ(Read(text, {"model.overrides.window=null"}).model().overrides().fields().size(), 0u);
}

TEST(Spec, NamesThatNoFamilyHasGetTheirPlaceAndTheNearest) {
  EXPECT_THAT(Errors("model:\n  overrides:\n    hiden: 3", {}),
              ::testing::HasSubstr(
                  "s.yaml:3: model.overrides.hiden: unknown field; did you mean 'hidden'?"));
  EXPECT_THAT(Errors("model:\n  preset: gpt-oss-20b\n  overrides:\n    windw: 3", {}),
              ::testing::HasSubstr(
                  "s.yaml:4: model.overrides.windw: unknown field; did you mean 'window'?"));
  EXPECT_THAT(Errors("model:\n  overrides:\n    qqq: 3", {}),
              ::testing::AllOf(::testing::HasSubstr("unknown field; known here: family"),
                               ::testing::HasSubstr(" window"),
                               ::testing::Not(::testing::HasSubstr(" fields"))));
  EXPECT_THAT(Errors("model:\n  overrides:\n    window: [3]", {}),
              ::testing::HasSubstr(
                  "s.yaml:3: model.overrides.window: wanted a whole number, found a list"));
}

}  // namespace
}  // namespace trainyard::cli
