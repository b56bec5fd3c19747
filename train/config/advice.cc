#include "train/config/advice.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job_axes.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/config/validate_layout.h"

namespace trainyard {
namespace {

struct Size {
  std::string field;
  int64_t* value;
  int64_t limit;
};

// If a change of each of several sizes would do, the first in this order is proposed.
std::vector<Size> SizesOf(JobConfig& job) {
  std::vector<Size> sizes;
  ForEachAxis(job.parallelism, [&](const JobAxis& axis, int64_t& size) {
    sizes.push_back({absl::StrCat("parallelism.", axis.name), &size, kMaxDevices});
  });
  sizes.push_back({"batch.micro", &job.batch.micro, kMaxGlobalBatch});
  sizes.push_back({"batch.global", &job.batch.global, kMaxGlobalBatch});
  sizes.push_back({"batch.sequence", &job.batch.sequence, kMaxSequence});
  sizes.push_back({"devices", &job.devices, kMaxDevices});
  return sizes;
}

std::vector<int64_t> DivisorsOf(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    divisors.push_back(d);
    if (d != number / d) divisors.push_back(number / d);
  }
  return divisors;
}

// Returns candidates for `size`, among which is the closest legal value if there is any. The
// candidates satisfy the rules that say what the size must divide, or what it must be a multiple
// of. The other sizes must be within their limits.
std::vector<int64_t> Candidates(const JobConfig& job, const ModelConfig& model, const Size& size) {
  const ParallelismConfig& p = job.parallelism;
  const BatchConfig& batch = job.batch;
  if (size.field == "devices") {
    if (batch.global % batch.micro != 0 || ModelRanks(p) > kMaxDevices) return {};
    std::vector<int64_t> devices = DivisorsOf(batch.global / batch.micro);  // Data ranks.
    for (int64_t& count : devices) count *= ModelRanks(p);
    return devices;
  }
  if (size.field == "batch.micro") return DivisorsOf(batch.global);
  if (size.field == "batch.global") {
    if (job.devices % ModelRanks(p) != 0) return {};
    const int64_t unit = batch.micro * (job.devices / ModelRanks(p)) * PipelineRound(p);
    return {NearestMultiple(batch.global, unit, kMaxGlobalBatch)};
  }
  if (size.field == "batch.sequence") {
    if (FactsOf(model).one_sequence) return {FactsOf(model).max_sequence};
    const int64_t halves = p.context == 1 ? 1 : 2;
    const int64_t for_tensor = p.tensor / std::gcd(p.tensor, batch.micro * halves);
    return {
        NearestMultiple(batch.sequence, halves * p.context * for_tensor,
                        std::min(FactsOf(model).max_sequence, kMaxMicroBatchTokens / batch.micro))};
  }
  if (size.field == "parallelism.virtual_pipeline") {
    std::vector<int64_t> chunks(size_t(FactsOf(model).layers + 2));
    std::iota(chunks.begin(), chunks.end(), 1);
    return chunks;
  }
  return DivisorsOf(job.devices);
}

bool IsLegal(const JobConfig& job, const ModelConfig& model) {
  Violations violations;
  ValidateLayout(job, &model, violations);
  return violations.empty();
}

// Returns nullopt if there is no legal value, or if the layout is legal already.
std::optional<int64_t> NearestLegal(JobConfig& job, const ModelConfig& model, const Size& size) {
  for (const Size& other : SizesOf(job)) {
    const bool within = *other.value >= 1 && *other.value <= other.limit;
    if (other.value != size.value && !within) return std::nullopt;
  }
  if (IsLegal(job, model)) return std::nullopt;
  const int64_t found = *size.value;
  std::vector<int64_t> candidates = Candidates(job, model, size);
  // A value far beyond the limit has almost the same distance to all candidates.
  const int64_t near = std::clamp(found, -size.limit, 2 * size.limit);
  std::sort(candidates.begin(), candidates.end(), [&](int64_t a, int64_t b) {
    const int64_t to_a = std::abs(a - near), to_b = std::abs(b - near);
    return to_a != to_b ? to_a < to_b : a > b;
  });
  const auto legal = std::find_if(candidates.begin(), candidates.end(), [&](int64_t candidate) {
    *size.value = candidate;
    return IsLegal(job, model);
  });
  *size.value = found;
  return legal == candidates.end() ? std::nullopt : std::optional(*legal);
}

FieldViolation Advice(const Size& size, int64_t nearest) {
  return {size.field, "a size that goes with the others", absl::StrCat(*size.value),
          absl::StrCat(nearest)};
}

}  // namespace

std::optional<FieldViolation> OneChange(JobConfig job, absl::string_view field) {
  const absl::StatusOr<ModelConfig> model = ResolveModel(job.model);
  if (!model.ok()) return std::nullopt;
  for (const Size& size : SizesOf(job)) {
    if (size.field != field) continue;
    const std::optional<int64_t> nearest = NearestLegal(job, *model, size);
    return nearest ? std::optional(Advice(size, *nearest)) : std::nullopt;
  }
  return std::nullopt;
}

void PutOneChangeFirst(JobConfig job, const ModelConfig& model,
                       std::vector<FieldViolation>& layout) {
  if (layout.empty()) return;
  FieldViolation& first = layout.front();
  const std::vector<Size> sizes = SizesOf(job);
  const auto own = std::find_if(sizes.begin(), sizes.end(),
                                [&](const Size& size) { return size.field == first.field; });
  if (own == sizes.end()) return;
  if (const auto nearest = NearestLegal(job, model, *own)) {
    first.nearest = absl::StrCat(*nearest);
    return;
  }
  for (const Size& size : sizes) {
    if (const auto nearest = NearestLegal(job, model, size)) {
      layout.insert(layout.begin(), Advice(size, *nearest));
      return;
    }
  }
}

}  // namespace trainyard
