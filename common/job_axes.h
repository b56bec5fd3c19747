// The sizes by which a job divides its model, sequences and experts over ranks. Each size is
// declared once, in the table below. These parts read the table: specs, their checks and the
// nearest legal values, manifests of checkpoints, stored jobs, the labels of metrics, and
// `checkpoint inspect`.
//
// To add an axis, add a row to ForEachAxis, a member to AxisSizes and to ParallelismConfig
// (train/config/job_config.h), and a field to Parallelism in job_spec.proto, with its limits in the
// option `field`. MeshOf (train/config/mesh.h) or LayoutOf (train/step/layout.h) and
// train/config/validate_layout.cc say what the axis means.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainyard {

template <typename Size>
struct AxisSizes {
  Size tensor = 1;
  Size pipeline = 1;
  Size context = 1;
  Size expert = 1;            // Divides the data axis.
  Size virtual_pipeline = 1;  // Parts of the model on each pipeline rank.
  bool operator==(const AxisSizes&) const = default;
};

struct JobAxis {
  const char* name;  // The name in specs, files and labels.
  // Whether the axis multiplies the ranks that one copy of the model takes. The other axes divide
  // the model over ranks that the job has without them.
  bool takes_ranks = false;
  bool later = false;  // The manifests of the first releases do not have the axis.
};

// Calls visit(JobAxis, size) for each axis, in the order of manifests. `sizes` is a struct with a
// member for each axis.
template <typename Sizes, typename Visit>
constexpr void ForEachAxis(Sizes& sizes, Visit&& visit) {
  visit(JobAxis{.name = "tensor", .takes_ranks = true}, sizes.tensor);
  visit(JobAxis{.name = "pipeline", .takes_ranks = true}, sizes.pipeline);
  visit(JobAxis{.name = "context", .takes_ranks = true}, sizes.context);
  visit(JobAxis{.name = "expert", .later = true}, sizes.expert);
  visit(JobAxis{.name = "virtual_pipeline", .later = true}, sizes.virtual_pipeline);
}

constexpr size_t NumRows() {
  size_t rows = 0;
  const AxisSizes<int64_t> sizes;
  ForEachAxis(sizes, [&](const JobAxis&, int64_t) { ++rows; });
  return rows;
}
static_assert(NumRows() * sizeof(int64_t) == sizeof(AxisSizes<int64_t>), "an axis has no row");

// Returns the ranks that one copy of the model takes. The data axis divides the job's ranks by it.
template <typename Sizes>
int64_t ModelRanks(const Sizes& sizes) {
  int64_t ranks = 1;
  ForEachAxis(sizes, [&](const JobAxis& axis, int64_t size) {
    if (axis.takes_ranks) ranks *= size;
  });
  return ranks;
}

// Copies the size of each axis.
template <typename From, typename To>
void CopyAxes(const From& from, To& to) {
  std::vector<int64_t> sizes;
  ForEachAxis(from, [&](const JobAxis&, int64_t size) { sizes.push_back(size); });
  auto next = sizes.begin();
  ForEachAxis(to, [&](const JobAxis&, auto& size) { size = *next++; });
}

}  // namespace trainyard
