#include "train/config/fp8.h"

#include <algorithm>
#include <optional>
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

// The nearest degree that leaves blocks whole, of those that divide the present one.
int64_t NearestDegree(int64_t degree, const DividedBlock& divided) {
  const int64_t whole = divided.part * degree;
  for (int64_t fewer = degree - 1; fewer > 1; --fewer) {
    if (degree % fewer == 0 && whole % (fewer * divided.block) == 0) return fewer;
  }
  return 1;
}

void Refuse(const JobConfig& job, const DividedBlock& divided, Violations& violations) {
  const std::string blocks = absl::StrCat(Name(job.precision), " has a scale for ", divided.block);
  if (divided.axes == AxisSet(Axis::kContext)) {
    const int64_t multiple = 2 * job.parallelism.context * divided.block;
    const int64_t sequences = std::max<int64_t>(1, job.batch.sequence / multiple);
    return violations.Add(
        "batch.sequence",
        absl::StrCat("a multiple of 2 x parallelism.context (", job.parallelism.context, ") x ",
                     divided.block, " = ", multiple, ", because ", blocks, " tokens"),
        job.batch.sequence, sequences * multiple);
  }
  const int64_t tensor = job.parallelism.tensor;
  const char* const what = divided.dim == Dim::kTokens    ? "tokens"
                           : divided.dim == Dim::kOutputs ? "outputs"
                                                          : "inputs";
  violations.Add("parallelism.tensor",
                 absl::StrCat("a degree that leaves every rank a multiple of ", divided.block, " ",
                              what, " of ", divided.weight, ", because ", blocks),
                 absl::StrCat(tensor, ", which leaves it ", divided.part),
                 absl::StrCat(NearestDegree(tensor, divided)));
}

void CheckBlocks(const JobConfig& job, const ModelConfig& model, Violations& violations) {
  std::set<std::string> fields;  // One violation of each: layers are alike.
  for (const DividedBlock& divided : DividedBlocks(job, model)) {
    Violations found;
    Refuse(job, divided, found);
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
  if (legal && violations.empty() && formats.HasBlocks()) CheckBlocks(job, *model, violations);
}

}  // namespace trainyard
