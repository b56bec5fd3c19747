#include "controller/cli/tensorboard.h"

#include "absl/strings/str_cat.h"
#include "controller/cli/message_json.h"

namespace trainyard::cli {
namespace {

void AddPhases(const v1::PhaseSeconds& phases, std::vector<Scalar>& scalars) {
  scalars.push_back({"phase_seconds/data", phases.data()});
  scalars.push_back({"phase_seconds/forward", phases.forward()});
  scalars.push_back({"phase_seconds/backward", phases.backward()});
  scalars.push_back({"phase_seconds/grad_sync", phases.grad_sync()});
  scalars.push_back({"phase_seconds/optimizer", phases.optimizer()});
  scalars.push_back({"phase_seconds/pipeline_bubble", phases.pipeline_bubble()});
  scalars.push_back({"phase_seconds/checkpoint", phases.checkpoint()});
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

}  // namespace

double UnixSeconds(const google::protobuf::Timestamp& time) {
  return double(time.seconds()) + 1e-9 * time.nanos();
}

Event EventOf(const v1::StepRecord& record, uint32_t devices) {
  std::vector<Scalar> scalars = {{"loss", record.loss()},
                                 {"grad_norm", record.grad_norm()},
                                 {"learning_rate", record.learning_rate()},
                                 {"seconds", record.seconds()}};
  if (record.has_validation_loss()) {
    scalars.push_back({"validation_loss", record.validation_loss()});
  }
  if (record.has_load_balancing_loss()) {
    scalars.push_back({"load_balancing_loss", record.load_balancing_loss()});
  }
  if (record.has_mfu()) scalars.push_back({"mfu", record.mfu()});
  if (record.seconds() > 0 && devices > 0) {
    const double rate = double(record.tokens()) / record.seconds();
    scalars.push_back({"tokens_per_second", rate});
    scalars.push_back({"tokens_per_second_per_device", rate / devices});
  }
  AddPhases(record.phases(), scalars);
  AddGpu(record, scalars);
  return ScalarsEvent(UnixSeconds(record.finish_time()), int64_t(record.step()), scalars);
}

Event EventOfSpec(const v1::Job& job) {
  const std::string markdown = absl::StrCat("```\n", ProtobufJson(job.spec()), "```\n");
  return TextEvent(UnixSeconds(job.create_time()), 0, "spec", markdown);
}

}  // namespace trainyard::cli
