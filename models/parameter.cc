#include "models/parameter.h"

#include "common/check.h"

namespace trainyard {
namespace {

// Appends the part of `box` within [begin, end), offsets relative to the box. `dim` is the first
// along which the box may have more than one element.
void ClipFrom(const ParameterBox& box, int dim, int64_t begin, int64_t end,
              std::vector<ParameterBox>& out) {
  if (begin == end) return;
  if (begin == 0 && end == box.flat.elements) return out.push_back(box);
  const int64_t stride = box.flat.elements / box.shape[dim];
  // Elements [row, row + rows) along `dim`, and of their strides the part within the range.
  const auto recurse = [&](int64_t row, int64_t rows, int64_t from, int64_t to) {
    ParameterBox part = box;
    part.offset = part.offset.With(dim, box.offset[dim] + row);
    part.shape = part.shape.With(dim, rows);
    part.flat = {.offset = box.flat.offset + row * stride, .elements = rows * stride};
    ClipFrom(part, dim + 1, from - row * stride, to - row * stride, out);
  };
  int64_t row = begin / stride;
  if (begin % stride != 0) {
    const int64_t to = std::min(end, (row + 1) * stride);
    recurse(row++, 1, begin, to);
  }
  if (const int64_t last = end / stride; row < last) {
    recurse(row, last - row, row * stride, last * stride);
    row = last;
  }
  if (row * stride < end) recurse(row, 1, row * stride, end);
}

}  // namespace

Shape LocalShape(const ParameterSpec& spec, const Mesh& mesh) {
  const int ranks = mesh.size(spec.shard.axes);
  if (ranks == 1) return spec.shape;
  const int dim = spec.shard.dim;
  const int64_t pieces = int64_t(ranks) * spec.shard.sections;
  CHECK(spec.shape[dim] % pieces == 0)
      << spec.name << ' ' << spec.shape << ": dim " << dim << " does not divide into " << pieces;
  return spec.shape.With(dim, spec.shape[dim] / ranks);
}

std::vector<ParameterBox> BoxesOf(const ParameterStorage& storage, const Mesh& mesh) {
  std::vector<ParameterBox> boxes;
  int64_t flat = storage.flat.offset;
  for (const ParameterSpec& spec : storage.parameters) {
    const int dim = spec.shard.dim;
    const int sections = mesh.size(spec.shard.axes) == 1 ? 1 : spec.shard.sections;
    CHECK(sections == 1 || dim == 0) << spec.name << ": sections of columns are not contiguous";
    const Shape local = LocalShape(spec, mesh);
    const int64_t section = spec.shape[dim] / sections, piece = local[dim] / sections;
    Shape zero = spec.shape;
    for (int i = 0; i < zero.rank(); ++i) zero = zero.With(i, 0);
    for (int s = 0; s < sections; ++s) {
      ParameterBox box{
          .name = spec.name,
          .global_shape = spec.shape,
          .offset = zero.With(dim, s * section + mesh.coordinate(spec.shard.axes) * piece),
          .shape = local.With(dim, piece),
          .init = spec.init,
          .decay = storage.decay,
          .block = storage.block,
          .shard_axes = spec.shard.axes & mesh.active(),
          .copy_axes = mesh.active() - spec.shard.axes -
                       (storage.tied ? AxisSet() : AxisSet(Axis::kPipeline)),
          .reduce_axes = storage.ReduceAxes(spec)};
      box.flat = {.offset = flat, .elements = box.shape.elements()};
      flat += box.flat.elements;
      boxes.push_back(std::move(box));
    }
  }
  CHECK(flat == storage.flat.end()) << storage.parameters.front().name << ": boxes miss rows";
  return boxes;
}

std::vector<ParameterBox> Clip(const ParameterBox& box, const FlatRange& range) {
  const FlatRange part = box.flat.Intersect(range);
  std::vector<ParameterBox> boxes;
  ClipFrom(box, 0, part.offset - box.flat.offset, part.end() - box.flat.offset, boxes);
  return boxes;
}

}  // namespace trainyard
