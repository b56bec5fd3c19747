#include "train/config/job_config.h"

#include <utility>

#include "common/check.h"
#include "common/job_axes.h"
#include "train/data/chat.h"

namespace trainyard {

const char* Name(ExpertSplit split) {
  switch (split) {
    case ExpertSplit::kExpert:
      return "EXPERT";
    case ExpertSplit::kExpertTensor:
      return "EXPERT_TENSOR";
    case ExpertSplit::kExpertTensorContext:
      return "EXPERT_TENSOR_CONTEXT";
  }
  return "?";
}

const char* Name(ScheduleShape shape) {
  switch (shape) {
    case ScheduleShape::kConstant:
      return "constant";
    case ScheduleShape::kCosine:
      return "cosine";
    case ScheduleShape::kLinear:
      return "linear";
    case ScheduleShape::kWsd:
      return "wsd";
  }
  return "?";
}

int64_t DataParallel(const JobConfig& job) {
  const int64_t others = ModelRanks(job.parallelism);
  CHECK(others > 0 && job.devices % others == 0) << job.devices << " devices over " << others;
  return job.devices / others;
}

int64_t AccumulationSteps(const JobConfig& job) {
  const int64_t micro = job.batch.micro * DataParallel(job);
  CHECK(micro > 0 && job.batch.global % micro == 0) << job.batch.global << " over " << micro;
  return job.batch.global / micro;
}

double MinRatio(const ScheduleConfig& schedule) {
  return schedule.shape == ScheduleShape::kConstant ? 1 : schedule.min_ratio.value_or(0.1);
}

void TakeTokenizerOfImport(JobConfig& job) {
  if (job.data.source() != &ChatSource()) return;
  std::string& tokenizer = job.data.As<ChatData>().tokenizer;
  if (tokenizer.empty()) tokenizer = job.model.import_path;
}

std::vector<JobPath> PathsOf(const JobConfig& job) {
  std::vector<JobPath> paths;
  for (DataPath& data : PathsOf(job.data)) {
    paths.push_back({std::move(data.field), std::move(data.path)});
  }
  if (job.checkpoint) paths.push_back({"checkpoint.directory", job.checkpoint->directory});
  if (!job.model.import_path.empty()) paths.push_back({"model.import", job.model.import_path});
  if (!job.init_from.empty()) paths.push_back({"init_from", job.init_from});
  if (job.profile) paths.push_back({"profile.directory", job.profile->directory});
  return paths;
}

}  // namespace trainyard
