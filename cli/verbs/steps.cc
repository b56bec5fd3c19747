// trainyard steps: prints one record for every optimizer step of a job, or plots its losses.

#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/client.h"
#include "cli/errors.h"
#include "cli/format.h"
#include "cli/plot.h"
#include "cli/verbs/verbs.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace trainyard::cli {
namespace {

// The columns that fit a terminal. `-o jsonl` prints all numbers of a step.
std::vector<std::string> Row(const v1::StepRecord& record) {
  return {absl::StrCat(record.step(), record.skipped() ? " skipped" : ""),
          FormatNumber(record.loss(), 5),
          record.has_validation_loss() ? FormatNumber(record.validation_loss(), 5) : "",
          FormatNumber(record.grad_norm(), 4),
          FormatNumber(record.learning_rate(), 4),
          FormatNumber(record.seconds(), 4),
          record.seconds() > 0 ? FormatCount(double(record.tokens()) / record.seconds()) : "",
          record.has_mfu() ? FormatPercent(record.mfu()) : ""};
}

void PrintTable(const v1::StreamStepsResponse& all, Output& output) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::StepRecord& record : all.steps()) rows.push_back(Row(record));
  output.Table({{"STEP", true},
                {"LOSS", true},
                {"VALIDATION", true},
                {"GRAD NORM", true},
                {"LEARNING RATE", true},
                {"SECONDS", true},
                {"TOKENS/S", true},
                {"MFU", true}},
               rows);
}

void PrintPlot(const v1::StreamStepsResponse& all, Output& output) {
  std::vector<PlotPoint> training, validation;
  for (const v1::StepRecord& record : all.steps()) {
    const double step = double(record.step());
    training.push_back({step, record.loss()});
    if (record.has_validation_loss()) validation.push_back({step, record.validation_loss()});
  }
  output.Text(PlotLosses(
      training, validation,
      {.columns = output.terminal().columns, .rows = 16, .utf8 = output.terminal().utf8}));
}

absl::Status RunSteps(const Context& context) {
  v1::StreamStepsRequest request;
  request.set_job_id(context.arguments.Text("JOB"));
  request.set_after_step(context.arguments.Number("--after"));
  request.set_follow(context.arguments.Flag("--follow"));
  Output& output = context.output;
  if (context.arguments.Flag("--plot") && output.format() != Format::kTable) {
    return UsageError("--plot: wanted no --output with it, because a drawing has no other format");
  }
  v1::StreamStepsResponse all;
  Client client(context.ControllerAddress(), context.Places());
  const absl::Status status = client.Read<v1::StreamStepsResponse>(
      [&](v1::JobService::Stub& stub, grpc::ClientContext* call) {
        return stub.StreamSteps(call, request);
      },
      [&](const v1::StreamStepsResponse& response) {
        for (const v1::StepRecord& record : response.steps()) {
          request.set_after_step(record.step());
          if (output.format() == Format::kJsonLines) {
            output.Line(JsonText(PlainJson(record)));
          } else {
            *all.add_steps() = record;
          }
        }
      });
  RETURN_IF_ERROR(status);
  if (context.arguments.Flag("--plot")) {
    PrintPlot(all, output);
  } else if (output.format() == Format::kJson) {
    output.Text(ProtobufJson(all));
  } else if (output.format() == Format::kTable) {
    PrintTable(all, output);
  }
  return absl::OkStatus();
}

}  // namespace

Verb StepsVerb() {
  return {
      .name = "steps",
      .summary = "prints one record for each step: loss, rate, seconds by phase, MFU",
      .positionals = {{"JOB", "the job's id"}},
      .options = {NumberOption("--after", "STEP", "only later steps", "0"),
                  FlagOption("--follow", "-f", "continues until the job ends"),
                  FlagOption("--plot", "", "draws training and validation loss instead")},
      .offers = kController | kFormats | kQuiet,
      .examples = {"trainyard steps j-6aewpgm800 -o jsonl", "trainyard steps j-6aewpgm800 --plot"},
      .run = RunSteps};
}

}  // namespace trainyard::cli
