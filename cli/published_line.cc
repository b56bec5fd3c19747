#include "cli/published_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/format.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "train/config/frozen.h"

namespace trainyard::cli {
namespace {

nlohmann::ordered_json LineOf(const JobConfig& job, const ModelConfig& model,
                              const PublishedSpeed& speed) {
  const ParallelismConfig& p = job.parallelism;
  nlohmann::ordered_json line = {
      {"gbs", job.batch.global},  {"mbs", job.batch.micro}, {"sequence", job.batch.sequence},
      {"tp", p.tensor},           {"pp", p.pipeline},       {"cp", p.context},
      {"vp", p.virtual_pipeline}, {"ep", p.expert},         {"ga", AccumulationSteps(job)}};
  if (p.zero == Zero::kFull) line["fsdp"] = DataParallel(job);
  line["seconds_per_step"] = speed.seconds_per_step;
  line["tflops_per_gpu"] = speed.tflops_per_gpu;
  line["tokens_per_s_gpu"] = speed.tokens_per_s_gpu;
  if (speed.mfu > 0) line["mfu"] = speed.mfu;
  const PageCount count = CountOf(job, model);
  line["convention"] = std::string(Name(count.convention));
  line["slips"] = Slips(model, job.batch.sequence, count.convention, count.task);
  return line;
}

void PrintForPeople(const nlohmann::ordered_json& line, Output& output) {
  std::vector<Column> head;
  std::vector<std::string> row;
  const auto add = [&](const char* title, const std::string& value) {
    head.push_back({title, true});
    row.push_back(value);
  };
  const auto number = [&](const char* title, const char* key) {
    add(title, line.contains(key) ? JsonText(line.at(key)) : "-");
  };
  const auto real = [&](const char* title, const char* key, int digits) {
    add(title, line.contains(key) ? FormatNumber(line.at(key).get<double>(), digits) : "-");
  };
  number("GBS", "gbs"), number("MBS", "mbs"), number("SEQ", "sequence");
  number("TP", "tp"), number("PP", "pp"), number("CP", "cp"), number("VP", "vp");
  number("EP", "ep"), number("GA", "ga"), number("FSDP", "fsdp");
  real("SECONDS/STEP", "seconds_per_step", 4), real("TFLOP/S/GPU", "tflops_per_gpu", 4);
  real("TOKENS/S/GPU", "tokens_per_s_gpu", 6), real("MFU %", "mfu", 4);
  output.Table(head, {row});
  output.Note(absl::StrCat("TFLOP/s and MFU are by the convention '",
                           line.at("convention").get<std::string>(),
                           "', MFU relative to these devices' peak"));
  for (const nlohmann::ordered_json& slip : line.at("slips")) {
    output.Note(absl::StrCat("the publisher's slip: ", slip.get<std::string>()));
  }
}

double FlopsPerTokenOf(const JobConfig& job, const ModelConfig& model) {
  const PageCount count = CountOf(job, model);
  if (count == PageCount()) return TrainedFlopsPerToken(job, model);
  return FlopsPerToken(model, job.batch.sequence, count.convention, count.task).total();
}

}  // namespace

absl::StatusOr<PageCount> PageOf(const JobConfig& job, const ModelConfig& model) {
  PageCount count;
  const auto page = job.labels.find(kPageLabel), task = job.labels.find(kPageTaskLabel);
  if (page == job.labels.end()) return count;
  ASSIGN_OR_RETURN(count.convention, ParseFlopsConvention(page->second));
  if (task != job.labels.end()) {
    ASSIGN_OR_RETURN(count.task, ParseFlopsTask(task->second));
  }
  RETURN_IF_ERROR(CheckConvention(model, count.convention, count.task));
  return count;
}

PageCount CountOf(const JobConfig& job, const ModelConfig& model) {
  return PageOf(job, model).value_or(PageCount());
}

PublishedSpeed SpeedOf(const JobConfig& job, const ModelConfig& model,
                       const std::vector<v1::StepRecord>& steps) {
  CHECK(!steps.empty()) << "no step has ended";
  std::vector<double> seconds;
  for (size_t i = (steps.size() + 9) / 10; i < steps.size(); ++i) {
    seconds.push_back(steps[i].seconds());
  }
  if (seconds.empty()) seconds.push_back(steps.back().seconds());
  std::nth_element(seconds.begin(), seconds.begin() + std::ssize(seconds) / 2, seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double tokens = double(job.batch.global * job.batch.sequence) / double(job.devices);
  const double flops = FlopsPerTokenOf(job, model) * tokens;
  const v1::StepRecord& last = steps.back();
  const double peak =
      last.has_mfu() && last.mfu() > 0 ? last.model_flops_per_second_per_device() / last.mfu() : 0;
  return {.seconds_per_step = median,
          .tokens_per_s_gpu = tokens / median,
          .tflops_per_gpu = flops / median / 1e12,
          .mfu = peak > 0 ? 100 * Mfu(flops, median, peak) : 0};
}

absl::Status PrintPublishedLine(Client& client, const std::string& job_id, const JobConfig& job,
                                const ModelConfig& model, Output& output) {
  v1::StreamStepsRequest request;
  request.set_job_id(job_id);
  std::vector<v1::StepRecord> steps;
  RETURN_IF_ERROR(client.Read<v1::StreamStepsResponse>(
      [&](v1::JobService::Stub& stub, grpc::ClientContext* context) {
        if (!steps.empty()) request.set_after_step(steps.back().step());
        return stub.StreamSteps(context, request);
      },
      [&](const v1::StreamStepsResponse& response) {
        steps.insert(steps.end(), response.steps().begin(), response.steps().end());
      }));
  if (steps.empty()) return absl::InternalError(absl::StrCat("job ", job_id, " has no steps"));
  const nlohmann::ordered_json line = LineOf(job, model, SpeedOf(job, model, steps));
  if (output.format() == Format::kTable) {
    PrintForPeople(line, output);
  } else {
    output.Line(JsonText(line, output.format() == Format::kJson ? 2 : -1));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::cli
