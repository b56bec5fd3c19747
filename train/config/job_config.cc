#include "train/config/job_config.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/job_axes.h"

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

double ValidationFraction(const DataConfig& data) {
  if (const auto* text = std::get_if<TextData>(&data)) return text->validation_fraction;
  if (const auto* indexed = std::get_if<IndexedData>(&data)) return indexed->validation_fraction;
  if (const auto* arrays = std::get_if<ArraysData>(&data)) return arrays->validation_fraction;
  if (const auto* blend = std::get_if<BlendData>(&data)) return blend->validation_fraction;
  return 0;
}

bool ResetsAttentionMask(const DataConfig& data) {
  const auto* const indexed = std::get_if<IndexedData>(&data);
  const auto* const blend = std::get_if<BlendData>(&data);
  return (indexed != nullptr && indexed->reset_attention_mask) ||
         (blend != nullptr && blend->reset_attention_mask);
}

std::vector<JobPath> PathsOf(const JobConfig& job) {
  std::vector<JobPath> paths;
  if (const auto* text = std::get_if<TextData>(&job.data)) {
    paths.push_back({"data.text.path", text->path});
  } else if (const auto* indexed = std::get_if<IndexedData>(&job.data)) {
    paths.push_back({"data.indexed.prefix", indexed->prefix});
  } else if (const auto* arrays = std::get_if<ArraysData>(&job.data)) {
    paths.push_back({"data.arrays.latents", arrays->latents});
    paths.push_back({"data.arrays.labels", arrays->labels});
  } else if (const auto* blend = std::get_if<BlendData>(&job.data)) {
    for (size_t i = 0; i < blend->datasets.size(); ++i) {
      const BlendedDataset& dataset = blend->datasets[i];
      const std::string field = absl::StrCat("data.blend.datasets[", i, "]");
      if (!dataset.prefix.empty()) paths.push_back({field + ".prefix", dataset.prefix});
      if (!dataset.path.empty()) paths.push_back({field + ".path", dataset.path});
    }
  }
  if (job.checkpoint) paths.push_back({"checkpoint.directory", job.checkpoint->directory});
  if (!job.model.import_path.empty()) paths.push_back({"model.import", job.model.import_path});
  if (!job.init_from.empty()) paths.push_back({"init_from", job.init_from});
  if (job.profile) paths.push_back({"profile.directory", job.profile->directory});
  return paths;
}

}  // namespace trainyard
