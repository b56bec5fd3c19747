#include "cli/tensorboard.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/message_json.h"
#include "common/proto_fields.h"
#include "common/step_numbers.h"

namespace trainyard::cli {
namespace {

void AddNumbers(const v1::StepRecord& record, std::vector<Scalar>& scalars) {
  StepNumbers numbers;
  ReadMessage(record, numbers);
  ForEachNumber(numbers, [&](const StepNumber& row, auto& number) {
    if (const std::optional<double> found = number) scalars.push_back({row.name, *found});
  });
  PhaseSeconds phases;
  ReadMessage(record.phases(), phases);
  for (const auto& [name, seconds] : kPhases) {
    scalars.push_back({absl::StrCat("phase_seconds/", name), phases.*seconds});
  }
}

void AddGpu(const v1::StepRecord& record, std::vector<Scalar>& scalars) {
  if (record.has_gpu_utilization_ratio()) {
    scalars.push_back({"gpu/utilization_ratio", record.gpu_utilization_ratio()});
  }
  if (record.has_gpu_power_watts()) {
    scalars.push_back({"gpu/power_watts", record.gpu_power_watts()});
  }
  if (record.has_gpu_sm_clock_hertz()) {
    scalars.push_back({"gpu/sm_clock_hertz", record.gpu_sm_clock_hertz()});
  }
  if (record.has_gpu_temperature_celsius()) {
    scalars.push_back({"gpu/temperature_celsius", record.gpu_temperature_celsius()});
  }
}

std::vector<MarkdownText> TextsOf(const v1::StepRecord& record) {
  std::vector<MarkdownText> texts;
  for (const v1::GeneratedText& generated : record.generated()) {
    const std::string text = absl::StrCat(generated.prompt(), generated.text());
    std::string fence = "```";  // Longer than any run of these in the text, which would end it.
    while (absl::StrContains(text, fence)) fence += '`';
    texts.push_back({absl::StrCat("generated/", texts.size()),
                     absl::StrCat(fence, "\n", text, "\n", fence, "\n")});
  }
  return texts;
}

}  // namespace

double UnixSeconds(const google::protobuf::Timestamp& time) {
  return double(time.seconds()) + 1e-9 * time.nanos();
}

SummaryEvent EventOf(const v1::StepRecord& record, uint32_t devices) {
  std::vector<Scalar> scalars = {{"seconds", record.seconds()}};
  AddNumbers(record, scalars);
  if (record.seconds() > 0 && devices > 0) {
    const double rate = double(record.tokens()) / record.seconds();
    scalars.push_back({"tokens_per_second", rate});
    scalars.push_back({"tokens_per_second_per_device", rate / devices});
  }
  AddGpu(record, scalars);
  return PointsEvent(UnixSeconds(record.finish_time()), int64_t(record.step()), scalars,
                     TextsOf(record));
}

SummaryEvent EventOfSpec(const v1::Job& job) {
  const std::string markdown = absl::StrCat("```\n", ProtobufJson(job.spec()), "```\n");
  return PointsEvent(UnixSeconds(job.create_time()), 0, {}, {{"spec", markdown}});
}

}  // namespace trainyard::cli
