#include "cli/tensorboard.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/message_json.h"
#include "common/proto_fields.h"
#include "common/worker_fields.h"

namespace trainyard::cli {
namespace {

void AddNumbers(const v1::StepRecord& record, std::vector<Scalar>& scalars) {
  StepRecord step;
  MessageVisitor<true> reader(record);
  VisitStepMessage(reader, step);
  ForEachNumber(step, [&](const StepNumber& row, const std::optional<double>& number) {
    if (number) scalars.push_back({row.name, *number});
  });
  for (const auto& [name, seconds] : kPhases) {
    scalars.push_back({absl::StrCat("phase_seconds/", name), step.phases.*seconds});
  }
  for (const GpuNumber& row : kGpuNumbers) {
    const std::optional<double>& number = step.gpu.*row.value;
    if (number) scalars.push_back({absl::StrCat("gpu/", row.shown), *number});
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
  return PointsEvent(UnixSeconds(record.finish_time()), int64_t(record.step()), scalars,
                     TextsOf(record));
}

SummaryEvent EventOfSpec(const v1::Job& job) {
  const std::string markdown = absl::StrCat("```\n", ProtobufJson(job.spec()), "```\n");
  return PointsEvent(UnixSeconds(job.create_time()), 0, {}, {{"spec", markdown}});
}

}  // namespace trainyard::cli
