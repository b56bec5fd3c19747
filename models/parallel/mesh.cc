#include "models/parallel/mesh.h"

#include <algorithm>

#include "common/check.h"

namespace trainyard {
namespace {

int SizeOf(const Mesh& mesh, Axis axis) {
  switch (axis) {
    case Axis::kKvReplica:
      return mesh.kv_replicas;
    case Axis::kTensor:
      return mesh.tensor / mesh.kv_replicas;
    case Axis::kContext:
      return mesh.context;
    case Axis::kExpert:
      return mesh.expert;
    case Axis::kData:
      return mesh.data / mesh.expert;
    case Axis::kPipeline:
      return mesh.pipeline;
    case Axis::kEnds:
      return std::max(int(mesh.sharing_stages.size()), 1);
  }
  return 1;
}

}  // namespace

int Mesh::size(AxisSet axes) const {
  int size = axes.contains(Axis::kEnds) ? SizeOf(*this, Axis::kEnds) : 1;
  for (Axis axis : kAllAxes) {
    if (axes.contains(axis)) size *= SizeOf(*this, axis);
  }
  return size;
}

int Mesh::coordinate(AxisSet axes) const {
  CHECK(rank >= 0 && rank < ranks()) << "rank " << rank << " of " << ranks();
  int digits = rank, coordinate = 0, stride = 1;
  for (Axis axis : kAllAxes) {
    const int size = SizeOf(*this, axis);
    if (axes.contains(axis)) {
      coordinate += digits % size * stride;
      stride *= size;
    }
    digits /= size;
  }
  if (axes.contains(Axis::kEnds)) {
    const int stage = rank / (ranks() / pipeline);
    coordinate += stride * int(std::count_if(sharing_stages.begin(), sharing_stages.end(),
                                             [&](int other) { return other < stage; }));
  }
  return coordinate;
}

AxisSet Mesh::active() const {
  AxisSet set;
  for (Axis axis : kAllAxes) {
    if (SizeOf(*this, axis) > 1) set = set | axis;
  }
  return set;
}

std::vector<int> Mesh::Members(AxisSet axes) const {
  if (axes == AxisSet{Axis::kEnds}) {
    const int stride = ranks() / pipeline;
    std::vector<int> members;
    for (int stage : sharing_stages) members.push_back(rank % stride + stage * stride);
    return members;
  }
  std::vector<int> members;
  for (int other = 0; other < ranks(); ++other) {
    Mesh there = *this;
    there.rank = other;
    bool alike = true;
    for (Axis axis : kAllAxes) {
      alike &= axes.contains(axis) || there.coordinate(axis) == coordinate(axis);
    }
    if (alike) members.push_back(other);
  }
  return members;
}

}  // namespace trainyard
