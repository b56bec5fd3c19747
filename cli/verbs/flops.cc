// trainyard flops: prints model FLOPs per token by a named convention, and what a speed is worth in
// it.

#include "models/arch/flops.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/errors.h"
#include "cli/format.h"
#include "cli/verbs/verbs.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "models/arch/conventions.h"
#include "models/arch/registry.h"

namespace trainyard::cli {
namespace {

using nlohmann::ordered_json;

absl::Status UsageOf(absl::string_view option, const absl::Status& status) {
  return status.ok() ? status : UsageError(absl::StrCat(option, ": ", status.message()));
}

// What the command was asked to count.
struct Question {
  Preset preset;
  FlopsConvention convention;
  FlopsTask task;
  int64_t sequence;
};

absl::StatusOr<Question> ReadQuestion(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Preset preset, FindPreset(arguments.Text("MODEL")));
  const auto convention = ParseFlopsConvention(arguments.Text("--convention"));
  RETURN_IF_ERROR(UsageOf("--convention", convention.status()));
  const auto task = ParseFlopsTask(arguments.Text("--task"));
  RETURN_IF_ERROR(UsageOf("--task", task.status()));
  RETURN_IF_ERROR(UsageOf("--convention", CheckConvention(preset.config, *convention, *task)));
  const ModelFacts facts = FactsOf(preset.config);
  const int64_t sequence =
      arguments.Has("--sequence") ? int64_t(arguments.Number("--sequence")) : facts.max_sequence;
  if (facts.one_sequence && sequence != facts.max_sequence) {
    return UsageError(absl::StrCat("--sequence: wanted ", facts.max_sequence,
                                   ", the tokens of each sample of ", preset.name, "; found ",
                                   sequence));
  }
  return Question{preset, *convention, *task, sequence};
}

// Refuses options that would have no effect.
absl::Status CheckSpeedOptions(const Arguments& arguments, const Question& question) {
  const std::string precision = arguments.Text("--precision");
  if (precision != "BF16" && precision != "FP8") {
    return UsageError(absl::StrCat("--precision: wanted BF16 or FP8, found '", precision, "'"));
  }
  for (const char* option : {"--precision", "--devices"}) {
    if (!arguments.Given(option) || arguments.Has("--tokens-per-second")) continue;
    return UsageError(
        absl::StrCat(option,
                     ": wanted --tokens-per-second beside it, found none; it has no effect "
                     "on FLOPs"));
  }
  if (!arguments.Given("--devices")) return absl::OkStatus();
  const auto time = PublishedTrainingTime(question.convention, question.task);
  if (!time) {
    return UsageError(
        absl::StrCat("--devices: wanted a convention whose page has a time to train, "
                     "found ",
                     Name(question.convention)));
  }
  if (time->devices > 0) {
    return UsageError(absl::StrCat("--devices: wanted none with convention ",
                                   Name(question.convention), ", whose page counts ", time->devices,
                                   " devices"));
  }
  return absl::OkStatus();
}

// Adds what devices achieve that train at the speed of --tokens-per-second.
absl::Status AddSpeed(const Arguments& arguments, const Question& question, ordered_json& json) {
  const std::string text = arguments.Text("--tokens-per-second");
  double tokens = 0;
  if (!absl::SimpleAtod(text, &tokens) || !(tokens > 0 && tokens < 1e15)) {
    return UsageError(
        absl::StrCat("--tokens-per-second: wanted a number above 0, found '", text, "'"));
  }
  const double flops = json.at("flops_per_token").get<double>() * tokens;
  const double peak = PublishedPeak(question.convention, arguments.Text("--precision") == "FP8");
  json["tokens_per_second_per_device"] = tokens;
  json["model_flops_per_second_per_device"] = flops;
  json["mfu"] = Mfu(flops, 1, peak);
  json["peak_flops"] = peak;
  const auto time = PublishedTrainingTime(question.convention, question.task);
  if (!time) return absl::OkStatus();
  const int64_t devices =
      time->devices > 0 ? time->devices : int64_t(arguments.Number("--devices"));
  json["training_time"] = {{"tokens", time->tokens},
                           {"devices", devices},
                           {"seconds", time->tokens / (tokens * double(devices))}};
  return absl::OkStatus();
}

void PrintForPeople(const ordered_json& json, const Flops& flops, Output& output) {
  std::vector<std::string> parts = {"qkvo", "attention", "mlp", "output"};
  for (const auto& [label, value] : flops.other) parts.push_back(label);
  parts.push_back("flops_per_token");
  std::vector<std::vector<std::string>> rows;
  for (const std::string& part : parts) {
    const double value = json.at(part).get<double>();
    rows.push_back({part, FormatCount(value), FormatPercent(value / flops.total())});
  }
  output.Table({{"PART"}, {"FLOPS/TOKEN", true}, {"SHARE", true}}, rows);
  for (const ordered_json& slip : json.at("slips")) {
    output.Line(absl::StrCat("the publisher's slip: ", slip.get<std::string>()));
  }
  if (!json.contains("mfu")) return;
  output.Line(absl::StrFormat("%.1f TFLOP/s a device, MFU %.2f%% of an H100's %.1f TFLOP/s",
                              json.at("model_flops_per_second_per_device").get<double>() / 1e12,
                              100 * json.at("mfu").get<double>(),
                              json.at("peak_flops").get<double>() / 1e12));
  if (!json.contains("training_time")) return;
  const ordered_json& time = json.at("training_time");
  const double seconds = time.at("seconds").get<double>();
  output.Line(absl::StrFormat(
      "%s tokens on %d devices: %.2f days (%s)", FormatCount(time.at("tokens").get<double>()),
      time.at("devices").get<int64_t>(), seconds / 86400, FormatSeconds(seconds)));
}

absl::Status RunFlops(const Context& context) {
  ASSIGN_OR_RETURN(const Question question, ReadQuestion(context.arguments));
  RETURN_IF_ERROR(CheckSpeedOptions(context.arguments, question));
  const auto& [preset, convention, task, sequence] = question;
  const Flops flops = FlopsPerToken(preset.config, sequence, convention, task);
  ordered_json json = {{"model", preset.name},
                       {"sequence", sequence},
                       {"convention", std::string(Name(convention))},
                       {"task", context.arguments.Text("--task")},
                       {"flops_per_token", flops.total()},
                       {"qkvo", flops.qkvo},
                       {"attention", flops.attention},
                       {"mlp", flops.mlp},
                       {"output", flops.output}};
  for (const auto& [label, value] : flops.other) json[label] = value;
  json["slips"] = Slips(preset.config, sequence, convention, task);
  if (context.arguments.Has("--tokens-per-second")) {
    RETURN_IF_ERROR(AddSpeed(context.arguments, question, json));
  }
  Output& output = context.output;
  if (output.format() == Format::kJson) {
    output.Line(JsonText(json, 2));
  } else if (output.format() == Format::kJsonLines) {
    output.Line(JsonText(json));
  } else {
    PrintForPeople(json, flops, output);
  }
  return absl::OkStatus();
}

}  // namespace

Verb FlopsVerb() {
  return {
      .name = "flops",
      .summary = "counts a model's FLOPs per trained token, and what a speed is worth",
      .positionals = {{"MODEL", "a model of 'trainyard models'"}},
      .options = {NumberOption("--sequence", "S",
                               "tokens of a sequence; default: the model's longest", "",
                               {1, uint64_t(kMaxSequence)}),
                  TextOption("--convention", "C", absl::StrJoin(FlopsConventionNames(), ", "),
                             "exact"),
                  TextOption("--task", "TASK", absl::StrJoin(FlopsTaskNames(), ", "), "pretrain"),
                  TextOption("--tokens-per-second", "T",
                             "of a device: prints TFLOP/s, MFU and the page's time to train"),
                  TextOption("--precision", "P",
                             "with --tokens-per-second: BF16 or FP8, the peak of the MFU", "BF16"),
                  NumberOption("--devices", "N",
                               "with --tokens-per-second: devices of the run, for the time to "
                               "train where the page does not say them",
                               "1", {1, 1'000'000})},
      .offers = kFormats | kQuiet,
      .examples = {"trainyard flops llama3-8b --sequence 8192",
                   "trainyard flops llama3-8b --sequence 8192 --convention nemo20 "
                   "--tokens-per-second 12273 --precision FP8",
                   "trainyard flops llama2-70b --sequence 4096 --convention nemo20 --task lora "
                   "--tokens-per-second 2621 --devices 8 -o json"},
      .run = RunFlops};
}

}  // namespace trainyard::cli
