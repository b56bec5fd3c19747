#include "train/config/job_config.h"

#include "common/check.h"
#include "common/job_axes.h"
#include "train/data/source.h"

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
  if (schedule.shape == ScheduleShape::kConstant) return 1;
  constexpr double kStandard = Standard<double>("optimizer.schedule.wsd.min_ratio");
  static_assert(kStandard == Standard<double>("optimizer.schedule.cosine.min_ratio"),
                "the shapes have one default");
  return schedule.min_ratio.value_or(kStandard);
}

void TakeTokenizerOfImport(JobConfig& job) {
  std::string* const tokenizer = TokenizerIn(job.data);
  if (tokenizer != nullptr && tokenizer->empty()) *tokenizer = job.model.import_path;
}

}  // namespace trainyard
