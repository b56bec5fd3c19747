#include "train/config/scale.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/job_axes.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/config/validate_layout.h"

namespace trainyard {
namespace {

int64_t LargestDivisor(int64_t number, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, number);
  while (number % divisor != 0) --divisor;
  return divisor;
}

GivenModel& GivenOf(JobConfig& job) {
  if (job.model.architecture) return *job.model.architecture;
  if (!job.model.overrides) job.model.overrides.emplace();
  return *job.model.overrides;
}

// The field that says how many layers a model has, with its value for a number of them.
struct LayersField {
  std::string name;
  FieldValue value;
};
LayersField LayersFieldOf(const ModelConfig& model, int64_t layers) {
  for (const Field& field : FieldsOf(model)) {
    if (field.rule.name != absl::string_view("hybrid_pattern")) continue;
    return {field.rule.name, std::get<std::string>(field.value).substr(0, size_t(layers))};
  }
  return {"layers", layers};
}

// The job with the first of its model's layers, and that model; none if the job is not legal.
struct Candidate {
  JobConfig job;
  std::optional<ModelConfig> model;
};
Candidate WithLayers(JobConfig job, const ModelConfig& model, int64_t layers) {
  if (layers != FactsOf(model).layers) {
    const LayersField field = LayersFieldOf(model, layers);
    GivenOf(job).fields[field.name] = field.value;
  }
  job.recompute.blocks = std::min(job.recompute.blocks, LayersOfAStage(job.parallelism, layers));
  Violations violations;
  Validate(job, violations);
  std::optional<ModelConfig> fewer;
  if (violations.empty()) fewer = ResolveModel(job.model, violations);
  return {std::move(job), std::move(fewer)};
}

bool IsLegal(const JobConfig& job, const ModelConfig& model, int64_t layers) {
  return WithLayers(job, model, layers).model.has_value();
}

// The fewest layers from `least` on with which the job is legal; `most` if there are none.
int64_t LegalLayers(const JobConfig& job, const ModelConfig& model, int64_t least, int64_t most) {
  while (least < most && !IsLegal(job, model, least)) ++least;
  return least;
}

// The tensor axis as one machine holds it.
int64_t TensorOfMachine(int64_t tensor, const ScaleLimits& limits) {
  if (limits.devices_of_machine == 0) return tensor;
  return LargestDivisor(tensor, limits.devices_of_machine);
}

// Makes the axes that one copy of the model takes so small that the devices hold it.
void ShrinkModelAxes(const ScaleLimits& limits, ParallelismConfig& p) {
  const bool stages = p.pipeline > 1;
  p.tensor = TensorOfMachine(p.tensor, limits);
  for (int64_t* axis : {&p.pipeline, &p.context, &p.tensor}) {
    *axis = LargestDivisor(*axis, limits.devices / (ModelRanks(p) / *axis));
  }
  if (!stages || p.pipeline > 1) return;
  p.virtual_pipeline = 1;
  const bool needs_stages =
      p.schedule != nullptr && (p.schedule->split_backward || !p.schedule->TakesChunks(1));
  if (needs_stages) p.schedule = DefaultSchedule(1);
}

// Whether the job's first parameters are those of a model with all layers.
bool NeedsAllLayers(const JobConfig& job) {
  return !job.model.import_path.empty() || (!job.init_from.empty() && !job.init_from_subset);
}

struct Fit {
  int64_t layers;
  bool fits;
};

// The most layers, at most `layers`, with which the job is legal and fits; the fewest legal ones if
// it fits with none.
Fit LayersThatFit(const JobConfig& job, const ModelConfig& model, int64_t layers,
                  const ScaleLimits& limits) {
  const auto fits = [&](int64_t count) {
    const Candidate candidate = WithLayers(job, model, count);
    return candidate.model &&
           (limits.fits == nullptr || limits.fits(candidate.job, *candidate.model));
  };
  if (fits(layers)) return {layers, true};
  const ParallelismConfig& p = job.parallelism;
  const int64_t stages_need = std::max<int64_t>(1, p.pipeline * p.virtual_pipeline - 2);
  const int64_t first = NeedsAllLayers(job) ? layers : std::min(stages_need, layers);
  int64_t least = LegalLayers(job, model, first, layers), most = layers;
  // What is wrong with any number of layers is reported when the job is submitted.
  if (!IsLegal(job, model, least)) return {layers, true};
  if (!fits(least)) return {least, false};
  while (least + 1 < most) {  // `least` fits, and `most` does not.
    const int64_t middle = std::midpoint(least, most);
    (fits(middle) ? least : most) = middle;
  }
  return {least, true};
}

std::vector<int64_t> SizesOf(const ParallelismConfig& p) {
  std::vector<int64_t> sizes;
  ForEachAxis(p, [&](const JobAxis&, int64_t size) { sizes.push_back(size); });
  return sizes;
}

std::string WhyDevices(const JobConfig& from, const JobConfig& to, const ScaleLimits& limits) {
  const std::string wanted = absl::StrCat("--scale-to ", limits.devices);
  if (to.devices == limits.devices) return wanted;
  const int64_t of_model = ModelRanks(to.parallelism);
  if (DataParallel(to) == DataParallel(from)) {
    return absl::StrCat("one copy of the model takes ", of_model, " now");
  }
  return absl::StrCat(wanted, ", and one copy of the model takes ", of_model);
}

std::string WhyAxis(const JobAxis& axis, const ParallelismConfig& from, const ParallelismConfig& to,
                    const ScaleLimits& limits) {
  if (axis.name == absl::string_view("tensor") &&
      to.tensor == TensorOfMachine(from.tensor, limits)) {
    return absl::StrCat("its ranks share a machine, and the largest machine has ",
                        limits.devices_of_machine, " devices");
  }
  return axis.takes_ranks ? absl::StrCat("one copy of the model takes at most ", limits.devices,
                                         limits.devices == 1 ? " device" : " devices")
                          : "as the other axes allow";
}

// What differs between the jobs, except for the layers.
std::vector<ScaledField> ChangedSizes(const JobConfig& from, const JobConfig& to,
                                      const ScaleLimits& limits) {
  std::vector<ScaledField> changes;
  const auto add = [&](const std::string& path, int64_t before, int64_t after,
                       const std::string& why) {
    if (before == after) return;
    changes.push_back({path, absl::StrCat(before), absl::StrCat(after), why});
  };
  add("devices", from.devices, to.devices, WhyDevices(from, to, limits));
  const std::vector<int64_t> sizes = SizesOf(from.parallelism);
  auto before = sizes.begin();
  ForEachAxis(to.parallelism, [&](const JobAxis& axis, int64_t size) {
    add(absl::StrCat("parallelism.", axis.name), *before++, size,
        WhyAxis(axis, from.parallelism, to.parallelism, limits));
  });
  const auto name = [](const JobConfig& job) { return job.parallelism.schedule_kind()->name; };
  if (to.parallelism.schedule != from.parallelism.schedule) {
    changes.push_back({"parallelism.schedule", std::string(name(from)), std::string(name(to)),
                       "one stage has no bubble"});
  }
  add("batch.global", from.batch.global, to.batch.global,
      absl::StrCat("data-parallel ranks are ", DataParallel(to), ", micro-batches of each ",
                   AccumulationSteps(to), " as before"));
  add("recompute.blocks", from.recompute.blocks, to.recompute.blocks,
      "a pipeline stage has no more layers");
  return changes;
}

}  // namespace

ScaledJob ScaleTo(const JobConfig& given, const ModelConfig& model, const ScaleLimits& limits) {
  CHECK(limits.devices >= 1) << limits.devices << " devices";
  JobConfig job = given;
  ParallelismConfig& p = job.parallelism;
  ShrinkModelAxes(limits, p);
  const int64_t of_model = ModelRanks(p);
  const int64_t data = std::min(DataParallel(given), limits.devices / of_model);
  job.devices = data * of_model;
  p.expert = std::gcd(p.expert, data);
  job.batch.global = job.batch.micro * AccumulationSteps(given) * data;

  const int64_t all = FactsOf(model).layers, stages = given.parallelism.pipeline;
  int64_t layers = all;
  std::string why = "a stage keeps its blocks, of which embedding and head are two";
  if (p.pipeline < stages && !NeedsAllLayers(job)) {
    const int64_t of_stages = (all + 2) * p.pipeline / stages - 2;
    layers = LegalLayers(job, model, std::max<int64_t>(1, of_stages), all);
  }
  Fit fit = LayersThatFit(job, model, layers, limits);
  if (!fit.fits && p.virtual_pipeline > 1 && p.schedule == nullptr) {  // Each part has a block.
    p.virtual_pipeline = 1;
    fit = LayersThatFit(job, model, layers, limits);
  }
  if (fit.layers < layers) why = "to fit in the devices' memory";

  job = WithLayers(std::move(job), model, fit.layers).job;
  ScaledJob scaling{.job = job, .changes = ChangedSizes(given, job, limits), .fits = fit.fits};
  if (fit.layers == all) return scaling;
  const LayersField from = LayersFieldOf(model, all), to = LayersFieldOf(model, fit.layers);
  const char* const section = job.model.architecture ? "architecture" : "overrides";
  scaling.changes.push_back(
      {absl::StrCat("model.", section, ".", from.name), TextOf(from.value), TextOf(to.value), why});
  return scaling;
}

}  // namespace trainyard
