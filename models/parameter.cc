#include "models/parameter.h"

#include "common/check.h"

namespace trainyard {
namespace {

// Among how many ranks a parameter is divided, and which of them this one is.
struct Division {
  int64_t ranks = 1;
  int64_t coordinate = 0;
};

Division DivisionOf(const ParameterSpec& spec, const Mesh& mesh) {
  for (Axis axis : kAllAxes) {
    if (!spec.shard.axes.contains(axis)) continue;
    CHECK(spec.shard.axes == AxisSet{axis}) << spec.name << " is divided over several axes";
    return {mesh.size(axis), mesh.coordinate(axis)};
  }
  return {};
}

}  // namespace

Shape LocalShape(const ParameterSpec& spec, const Mesh& mesh) {
  const Division division = DivisionOf(spec, mesh);
  if (division.ranks == 1) return spec.shape;
  const int dim = spec.shard.dim;
  const int64_t pieces = division.ranks * spec.shard.sections;
  CHECK(spec.shape[dim] % pieces == 0)
      << spec.name << ' ' << spec.shape << ": dim " << dim << " does not divide into " << pieces;
  return spec.shape.With(dim, spec.shape[dim] / division.ranks);
}

std::vector<ParameterBox> BoxesOf(const ParameterStorage& storage, const Mesh& mesh) {
  std::vector<ParameterBox> boxes;
  int64_t flat = storage.flat.offset;
  for (const ParameterSpec& spec : storage.parameters) {
    const Division division = DivisionOf(spec, mesh);
    const int dim = spec.shard.dim;
    const int sections = division.ranks == 1 ? 1 : spec.shard.sections;
    CHECK(sections == 1 || dim == 0) << spec.name << ": sections of columns are not contiguous";
    const Shape local = LocalShape(spec, mesh);
    const int64_t section = spec.shape[dim] / sections, piece = local[dim] / sections;
    Shape zero = spec.shape;
    for (int i = 0; i < zero.rank(); ++i) zero = zero.With(i, 0);
    for (int s = 0; s < sections; ++s) {
      ParameterBox box{.name = spec.name,
                       .global_shape = spec.shape,
                       .offset = zero.With(dim, s * section + division.coordinate * piece),
                       .shape = local.With(dim, piece),
                       .init = spec.init,
                       .decay = storage.decay,
                       .block = storage.block,
                       .shard_axes = storage.shard_axes,
                       .reduce_axes = storage.reduce_axes};
      box.flat = {.offset = flat, .elements = box.shape.elements()};
      flat += box.flat.elements;
      boxes.push_back(std::move(box));
    }
  }
  CHECK(flat == storage.flat.end()) << storage.parameters.front().name << ": boxes miss rows";
  return boxes;
}

}  // namespace trainyard
