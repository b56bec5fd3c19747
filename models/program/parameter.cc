#include "models/program/parameter.h"

#include <array>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/check.h"

namespace trainyard {
namespace {

// Appends the part of `box` within [begin, end), as offsets in the box. `dim` is the first dim
// along which the box may have more than one element.
void ClipFrom(const ParameterBox& box, int dim, int64_t begin, int64_t end,
              std::vector<ParameterBox>& out) {
  if (begin == end) return;
  if (begin == 0 && end == box.flat.elements) return out.push_back(box);
  const int64_t stride = box.flat.elements / box.shape[dim];
  // Recurses into the elements [row, row + rows) along `dim`, with their part of the range.
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

Shape Zeros(const Shape& shape) {
  Shape zero = shape;
  for (int i = 0; i < zero.rank(); ++i) zero = zero.With(i, 0);
  return zero;
}

// The shape without its first dim.
Shape Inner(const Shape& shape) {
  std::array<int64_t, Shape::kMaxRank> dims;
  for (int i = 1; i < shape.rank(); ++i) dims[size_t(i - 1)] = shape[i];
  return Shape(std::span<const int64_t>(dims.data(), size_t(shape.rank() - 1)));
}

// The boxes of a storage, in the order of their places.
class BoxList {
 public:
  BoxList(const ParameterStorage& storage, const Mesh& mesh)
      : storage_(storage), mesh_(mesh), flat_(storage.flat.offset) {}

  // Adds all of this rank's piece of one parameter.
  void AddSections(const ParameterSpec& spec) {
    const int dim = spec.shard.dim;
    const int64_t ranks = mesh_.size(spec.shard.axes), rank = mesh_.coordinate(spec.shard.axes);
    std::vector<int64_t> sections = spec.shard.sections;
    if (ranks == 1 || sections.empty()) sections = {spec.shape[dim] + spec.padding};
    CHECK(sections.size() == 1 || dim == 0)
        << spec.name << ": sections of columns are not contiguous";
    const Shape local = LocalShape(spec, mesh_);
    int64_t begin = 0;
    for (const int64_t section : sections) {
      const int64_t piece = section / ranks, offset = begin + rank * piece;
      const int64_t held = std::min(piece, spec.shape[dim] - offset);  // Without the padding.
      CHECK(held > 0) << spec.name << ": a rank has padding alone";
      Add(spec, {.name = spec.name,
                 .global_shape = spec.shape,
                 .offset = Zeros(spec.shape).With(dim, offset),
                 .shape = local.With(dim, held)});
      flat_ += (piece - held) * (local.elements() / local[dim]) * Unit();
      begin += section;
    }
  }

  // Adds tensor i of this rank's stacked tensors.
  void AddStacked(const ParameterSpec& spec, int64_t i) {
    CHECK(spec.shard.dim == 0 && spec.shard.sections.empty()) << spec.name << " is divided within";
    const int64_t number = mesh_.coordinate(spec.shard.axes) * storage_.shape[0] + i;
    const Shape shape = Inner(spec.shape);
    Add(spec, {.name = absl::StrReplaceAll(spec.name, {{"*", absl::StrCat(number)}}),
               .global_shape = shape,
               .offset = Zeros(shape),
               .shape = shape});
  }

  std::vector<ParameterBox> Take() && {
    CHECK(flat_ == storage_.flat.end()) << storage_.parameters.front().name << ": boxes miss rows";
    return std::move(boxes_);
  }

 private:
  // The coordinate counts elements, or bytes of frozen parameters.
  int64_t Unit() const { return storage_.frozen ? int64_t(SizeOf(*storage_.frozen)) : 1; }

  void Add(const ParameterSpec& spec, ParameterBox box) {
    box.flat = {.offset = flat_, .elements = box.shape.elements() * Unit()};
    flat_ = box.flat.end();
    box.init = spec.init;
    box.frozen = storage_.frozen;
    box.decay = storage_.decay;
    box.state = spec.state;
    box.block = storage_.block;
    box.shard_axes = spec.shard.axes & mesh_.active();
    box.copy_axes = mesh_.active() - spec.shard.axes - AxisSet(Axis::kPipeline);
    if (storage_.tied) box.copy_axes = box.copy_axes | Axis::kEnds;
    box.reduce_axes = storage_.ReduceAxes(spec);
    boxes_.push_back(std::move(box));
  }

  const ParameterStorage& storage_;
  const Mesh& mesh_;
  int64_t flat_;
  std::vector<ParameterBox> boxes_;
};

}  // namespace

Shape LocalShape(const ParameterSpec& spec, const Mesh& mesh) {
  const int ranks = mesh.size(spec.shard.axes);
  const int dim = spec.shard.dim;
  std::vector<int64_t> sections = spec.shard.sections;
  CHECK(spec.padding == 0 || (dim == 0 && sections.empty() && !spec.stacked))
      << spec.name << ": padding is for rows that are divided as a whole";
  if (ranks == 1 && spec.padding == 0) return spec.shape;
  const int64_t size = spec.shape[dim] + spec.padding;
  if (sections.empty()) sections = {size};
  int64_t all = 0;
  for (const int64_t section : sections) {
    CHECK(section % ranks == 0) << spec.name << ' ' << spec.shape << ": a section of " << section
                                << " along dim " << dim << " does not divide into " << ranks;
    all += section;
  }
  CHECK(all == size) << spec.name << ' ' << spec.shape << ": sections of " << all;
  return spec.shape.With(dim, size / ranks);
}

VocabSlice SliceOf(const ParameterSpec& table, int64_t first, int64_t count) {
  const int64_t vocab = table.shape[0];
  return {.first = first,
          .vocab = vocab,
          .padding = std::clamp<int64_t>(first + count - vocab, 0, count)};
}

std::vector<ParameterBox> BoxesOf(const ParameterStorage& storage, const Mesh& mesh) {
  BoxList list(storage, mesh);
  if (storage.parameters.front().stacked) {
    for (int64_t i = 0; i < storage.shape[0]; ++i) {
      for (const ParameterSpec& spec : storage.parameters) list.AddStacked(spec, i);
    }
  } else {
    for (const ParameterSpec& spec : storage.parameters) list.AddSections(spec);
  }
  return std::move(list).Take();
}

std::span<const ParameterBox> Within(std::span<const ParameterBox> boxes, const FlatRange& range) {
  const auto first = std::partition_point(boxes.begin(), boxes.end(), [&](const ParameterBox& box) {
    return box.flat.end() <= range.offset;
  });
  const auto last = std::partition_point(
      first, boxes.end(), [&](const ParameterBox& box) { return box.flat.offset < range.end(); });
  return {first, last};
}

std::vector<ParameterBox> Clip(const ParameterBox& box, const FlatRange& range) {
  const FlatRange part = box.flat.Intersect(range);
  std::vector<ParameterBox> boxes;
  ClipFrom(box, 0, part.offset - box.flat.offset, part.end() - box.flat.offset, boxes);
  return boxes;
}

}  // namespace trainyard
