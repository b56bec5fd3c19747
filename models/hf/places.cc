#include "models/hf/places.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "common/check.h"
#include "models/model.h"
#include "models/parallel/mesh.h"

namespace trainyard {
namespace {

// The numbers that the name has where the pattern has '#' and '@'.
struct Numbers {
  std::vector<std::string> kept;
  std::optional<int64_t> index;
};

std::optional<Numbers> Match(absl::string_view pattern, absl::string_view name) {
  Numbers numbers;
  size_t at = 0;
  for (const char c : pattern) {
    if (c != '#' && c != '@') {
      if (at == name.size() || name[at] != c) return std::nullopt;
      ++at;
      continue;
    }
    size_t end = at;
    while (end < name.size() && absl::ascii_isdigit(name[end])) ++end;
    int64_t number = 0;
    if (!absl::SimpleAtoi(name.substr(at, end - at), &number)) return std::nullopt;
    if (c == '@') numbers.index = number;
    if (c == '#') numbers.kept.emplace_back(name.substr(at, end - at));
    at = end;
  }
  if (at != name.size()) return std::nullopt;
  return numbers;
}

std::string Fill(absl::string_view pattern, const std::vector<std::string>& numbers) {
  std::string name;
  size_t used = 0;
  for (const char c : pattern) {
    if (c != '#') {
      name += c;
      continue;
    }
    CHECK(used < numbers.size()) << pattern;
    name += numbers[used++];
  }
  return name;
}

HfParameter PlaceOf(const HfTable& table, const ParameterBox& box) {
  HfParameter placed{.name = box.name, .shape = box.global_shape, .tensor = box.name};
  for (const HfTensorRule& rule : table.tensors) {
    const std::optional<Numbers> numbers = Match(rule.parameter, box.name);
    if (!numbers) continue;
    placed.tensor = Fill(rule.tensor, numbers->kept);
    placed.index = numbers->index;
    placed.transposed = rule.transposed;
    placed.parts = rule.parts;
    placed.part = rule.part;
    placed.mxfp4 = rule.mxfp4;
  }
  CHECK(!placed.transposed || placed.shape.rank() == 2) << placed.name;
  return placed;
}

void Complete(HfLayout& layout) {
  std::vector<HfParameter>& all = layout.parameters;
  std::stable_sort(all.begin(), all.end(), [](const HfParameter& a, const HfParameter& b) {
    return std::make_pair(a.index, a.part) < std::make_pair(b.index, b.part);
  });
  const HfParameter& first = all.front();
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t slice = int64_t(i) / first.parts;
    CHECK(all[i].part == int64_t(i) % first.parts && all[i].index.value_or(0) == slice &&
          all[i].parts == first.parts && all[i].shape == first.shape)
        << all[i].name << " in " << layout.tensor;
  }
  if (first.index) layout.shape.push_back(layout.slices());
  const size_t begin = layout.shape.size();
  for (int i = 0; i < first.shape.rank(); ++i) layout.shape.push_back(first.shape[i]);
  layout.shape[begin] *= first.parts;
  if (first.transposed) std::swap(layout.shape[begin], layout.shape[begin + 1]);
}

// Calls copy(element of the slice, element of the parameter, count) for each run of elements that
// is contiguous in both.
template <typename Copy>
void ForEachRun(const HfParameter& p, Copy&& copy) {
  const int64_t rows = p.shape[0], columns = p.shape.elements() / rows;
  const int64_t slice_rows = rows * p.parts;
  if (!p.transposed && p.parts == 1 && p.matrices == 1) return copy(0, 0, rows * columns);
  for (int64_t row = 0; row < rows; ++row) {
    // The row's place among the parameter's rows in the slice.
    const int64_t own_row = row % (rows / p.matrices) * p.matrices + row / (rows / p.matrices);
    if (p.by_elements) {
      for (int64_t column = 0; column < columns; ++column) {
        copy((own_row * columns + column) * p.parts + p.part, row * columns + column, 1);
      }
      continue;
    }
    const int64_t slice_row = own_row * p.parts + p.part;
    if (!p.transposed) {
      copy(slice_row * columns, row * columns, columns);
      continue;
    }
    for (int64_t column = 0; column < columns; ++column) {
      copy(column * slice_rows + slice_row, row * columns + column, 1);
    }
  }
}

}  // namespace

std::vector<HfLayout> HfLayoutsOf(const ModelConfig& config, const HfTable& table) {
  std::vector<HfLayout> layouts;
  std::map<std::string, size_t> number_of;  // Of the tensors.
  std::set<std::string> seen;
  for (const ParameterStorage& storage : DeclareParameters(*CreateModel(config))) {
    for (const ParameterBox& box : BoxesOf(storage, Mesh())) {
      if (!seen.insert(box.name).second) continue;  // Tied.
      HfParameter placed = PlaceOf(table, box);
      const auto [it, added] = number_of.try_emplace(placed.tensor, layouts.size());
      if (added) layouts.push_back({.tensor = placed.tensor, .shape = {}, .parameters = {}});
      layouts[it->second].parameters.push_back(std::move(placed));
    }
  }
  for (HfLayout& layout : layouts) Complete(layout);
  return layouts;
}

void TakeRows(const HfParameter& parameter, size_t element_bytes, const void* slice, void* out) {
  const char* const from = static_cast<const char*>(slice);
  char* const to = static_cast<char*>(out);
  ForEachRun(parameter, [&](int64_t at_slice, int64_t at_parameter, int64_t count) {
    std::memcpy(to + size_t(at_parameter) * element_bytes, from + size_t(at_slice) * element_bytes,
                size_t(count) * element_bytes);
  });
}

void PutRows(const HfParameter& parameter, size_t element_bytes, const void* values, void* slice) {
  const char* const from = static_cast<const char*>(values);
  char* const to = static_cast<char*>(slice);
  ForEachRun(parameter, [&](int64_t at_slice, int64_t at_parameter, int64_t count) {
    std::memcpy(to + size_t(at_slice) * element_bytes, from + size_t(at_parameter) * element_bytes,
                size_t(count) * element_bytes);
  });
}

}  // namespace trainyard
