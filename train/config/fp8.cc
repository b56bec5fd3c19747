#include "train/config/fp8.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "train/config/adapter.h"
#include "train/config/frozen.h"
#include "train/config/inputs.h"
#include "train/config/mesh.h"
#include "train/config/precision.h"
#include "train/config/validate_layout.h"

namespace trainyard {
namespace {

using Dim = DividedBlock::Dim;

// The blocks that the job's ranks would divide. Stages of a pipeline divide no dim.
std::vector<DividedBlock> DividedBlocks(const JobConfig& job, const ModelConfig& model) {
  Mesh mesh = MeshOf(job, model);
  mesh.pipeline = 1;
  const RecordOptions record = {.precision = RowOf(job.precision).formats,
                                .micro_batch = job.batch.micro,
                                .sequence = job.batch.sequence,
                                .mesh = mesh,
                                .context_exchange = job.parallelism.context_exchange,
                                .adapter = AdapterOf(job),
                                .plain = PlainLayersOf(job)};
  return RecordGradients(*CreateModel(model), {.record = record, .frozen = FrozenBy(job)})
      .divided_blocks;
}

// Whether ranks that hold the same key or value compute a part of its gradient each. The parts
// would be rounded before they are added up.
bool RoundsParts(const JobConfig& job, const ModelConfig& model) {
  return MeshOf(job, model).size(Axis::kKvReplica) > 1;
}

// Whether the division among ranks is legal.
bool KeepsBlocks(const JobConfig& job, const ModelConfig& model) {
  Violations layout;
  ValidateLayout(job, &model, layout);
  if (!layout.empty() || RoundsParts(job, model)) return false;
  return !RowOf(job.precision).formats.HasBlocks() || DividedBlocks(job, model).empty();
}

// The nearest smaller degree of an axis that is legal, of those that divide the present one; "" if
// there is none.
std::string NearestDegree(JobConfig job, const ModelConfig& model,
                          int64_t ParallelismConfig::*axis) {
  const int64_t degree = job.parallelism.*axis;
  for (int64_t fewer = degree - 1; fewer >= 1; --fewer) {
    job.parallelism.*axis = fewer;
    if (degree % fewer == 0 && KeepsBlocks(job, model)) return absl::StrCat(fewer);
  }
  return "";
}

// The nearest legal multiple; "" if there is none.
std::string NearestSequence(JobConfig job, const ModelConfig& model, int64_t multiple) {
  const int64_t shorter = job.batch.sequence / multiple * multiple;
  for (const int64_t sequence : {shorter, shorter + multiple}) {
    job.batch.sequence = sequence;
    if (sequence > 0 && KeepsBlocks(job, model)) return absl::StrCat(sequence);
  }
  return "";
}

void Refuse(const JobConfig& job, const ModelConfig& model, const DividedBlock& divided,
            Violations& violations) {
  const char* const what = divided.dim == Dim::kTokens    ? "tokens"
                           : divided.dim == Dim::kOutputs ? "outputs"
                                                          : "inputs";
  const std::string because = absl::StrCat(", because ", Name(job.precision), " has a scale for ",
                                           divided.block, " ", what);
  const auto found = [&](int64_t degree) {
    return absl::StrCat(degree, ", which leaves each rank ", divided.part, " ", what);
  };
  if (divided.axes != AxisSet(Axis::kContext)) {
    return violations.Add("parallelism.tensor",
                          absl::StrCat("a degree that leaves each rank a multiple of ",
                                       divided.block, " ", what, " of ", divided.weight, because),
                          found(job.parallelism.tensor),
                          NearestDegree(job, model, &ParallelismConfig::tensor));
  }
  const int64_t context = job.parallelism.context, multiple = 2 * context * divided.block;
  const std::string nearest = NearestSequence(job, model, multiple);
  if (!nearest.empty()) {
    return violations.Add("batch.sequence",
                          absl::StrCat("a multiple of 2 x parallelism.context (", context, ") x ",
                                       divided.block, " = ", multiple, because),
                          job.batch.sequence, nearest);
  }
  violations.Add("parallelism.context",
                 absl::StrCat("a degree that leaves each half of a rank's part a multiple of ",
                              divided.block, " ", what, because),
                 found(context), NearestDegree(job, model, &ParallelismConfig::context));
}

void CheckBlocks(const JobConfig& job, const ModelConfig& model, Violations& violations) {
  std::set<std::string> fields;  // One violation of each: layers are alike.
  for (const DividedBlock& divided : DividedBlocks(job, model)) {
    Violations found;
    Refuse(job, model, divided, found);
    if (fields.insert(found.list().front().field).second) violations.AddAll(found);
  }
}

}  // namespace

PlainLayers PlainLayersOf(const JobConfig& job) {
  const Fp8Config fp8 = job.fp8.value_or(Fp8Config());
  return {.first = fp8.first_layers_in_bf16, .last = fp8.last_layers_in_bf16};
}

void ValidateFp8(const JobConfig& job, const ModelConfig* model, Violations& violations) {
  const Precision& formats = RowOf(job.precision).formats;
  if (job.fp8 && !formats.HasScales(ProductKind::kLayer)) {
    return violations.Add(
        "fp8", absl::StrCat("none for ", Name(job.precision), ", in which no layer is in 8 bits"),
        "a section");
  }
  if (model == nullptr) return;
  const int64_t layers = FactsOf(*model).layers;
  const PlainLayers plain = PlainLayersOf(job);
  const bool legal =
      violations.Check("fp8.first_layers_in_bf16", plain.first, {.least = 0, .most = layers - 1}) &&
      violations.Check(
          "fp8.last_layers_in_bf16", plain.last,
          {.least = 0, .most = layers - 1 - plain.first, .note = "so that a layer is in 8 bits"});
  if (!legal || !violations.empty() || !formats.HasScales(ProductKind::kLayer)) return;
  if (RoundsParts(job, *model)) {
    return violations.Add(
        "parallelism.tensor",
        absl::StrCat("at most kv_heads = ", FactsOf(*model).kv_heads, " in ", Name(job.precision),
                     ", because ranks that share a key would round parts of its gradient"),
        job.parallelism.tensor, NearestDegree(job, *model, &ParallelismConfig::tensor));
  }
  if (formats.HasBlocks()) CheckBlocks(job, *model, violations);
}

}  // namespace trainyard
