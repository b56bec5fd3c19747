#include "train/config/divided_blocks.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "train/config/adapter.h"
#include "train/config/fp8.h"
#include "train/config/frozen.h"
#include "train/config/mesh.h"
#include "train/config/precision.h"
#include "train/config/validate_layout.h"

namespace trainyard {
namespace {

using Dim = DividedBlock::Dim;

bool HasBlocks(const JobConfig& job) {
  return RowOf(job.precision).formats.HasBlocks() || IsBaseInNf4(job);
}

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

// Whether the division among ranks is legal.
bool KeepsBlocks(const JobConfig& job, const ModelConfig& model) {
  Violations layout;
  ValidateLayout(job, &model, layout);
  if (!layout.empty() || RoundsParts(job, model)) return false;
  return !HasBlocks(job) || DividedBlocks(job, model).empty();
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
  const std::string because =
      absl::StrCat(", because ", IsBaseInNf4(job) ? "NF4" : Name(job.precision),
                   " has a scale for ", divided.block, " ", what);
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

}  // namespace

bool RoundsParts(const JobConfig& job, const ModelConfig& model) {
  return RowOf(job.precision).formats.HasScales(ProductKind::kLayer) &&
         MeshOf(job, model).size(Axis::kKvReplica) > 1;
}

std::string NearestTensorDegree(const JobConfig& job, const ModelConfig& model) {
  return NearestDegree(job, model, &ParallelismConfig::tensor);
}

void CheckBlocks(const JobConfig& job, const ModelConfig& model, Violations& violations) {
  std::set<std::string> fields;  // One violation of each: layers are alike.
  for (const DividedBlock& divided : DividedBlocks(job, model)) {
    Violations found;
    Refuse(job, model, divided, found);
    if (fields.insert(found.list().front().field).second) violations.AddAll(found);
  }
}

}  // namespace trainyard
