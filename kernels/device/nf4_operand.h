// A weight in NF4 (nf4.h) as the operand of a product: besides its codes, what makes numbers of
// them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/device/nf4.h"
#include "kernels/device/tensor.h"

namespace trainyard {

// Rows of the weight that follow one another in one tensor. A rank may have rows of several
// tensors, and of each tensor some rows and some columns.
struct Nf4Run {
  int64_t row, rows;            // In the weight.
  int64_t first_block;          // Of the tensor's blocks, that of the run's first number.
  int64_t row_blocks;           // Blocks of a row of the whole tensor.
  int64_t first_group, groups;  // In Nf4Operand::groups: the tensor's groups, and its mean.
};

// Letters: N outputs, K inputs of the weight.
struct Nf4Operand {
  ConstTensor scales = {};            // [N, K / 64]  u8
  ConstTensor groups = {};            // f32, one dim: of each tensor the groups, then the mean
  std::span<const Nf4Run> runs = {};  // All rows, in order. On the host, for as long as the calls.
  // Of the weights of groups (products/grouped_matmul.h), which have no runs: how many tensors each
  // consists of. Scales and groups then have a first dim, which numbers the groups.
  int64_t tensors = 1;
};

// A product [rows, columns] with a weight in NF4, whose sums have `summed` terms.
struct Nf4Product {
  int64_t rows, summed;
};

// How many columns of the product a GPU computes with one part of the weight (products/nf4_parts.h)
// whose numbers have `size` bytes. The part should stay in the second-level cache, so it takes 32
// of its 50 MiB, and its numbers need not travel to memory and back. But it has whole waves of
// columns, at least one: a wave gives each of the 132 multiprocessors of an H200 one tile of 128 by
// 256. A product with a part of a wave would leave some of them idle. Of a product with few rows, a
// wave may be the whole weight, so a part has at most four times that memory, or one tile.
inline int64_t Nf4ColumnsOnGpu(const Nf4Product& of, size_t size) {
  constexpr int64_t kCache = int64_t{32} << 20, kMultiprocessors = 132;
  constexpr int64_t kTileRows = 128, kTileColumns = 256;
  const int64_t down = (of.rows + kTileRows - 1) / kTileRows;
  const int64_t in_cache = kCache / (of.summed * int64_t(size));
  const int64_t most = std::max(4 * in_cache / kTileColumns, int64_t{1});  // Tiles.
  const int64_t wave = std::clamp(kMultiprocessors / down, int64_t{1}, most) * kTileColumns;
  return std::max(in_cache / wave, int64_t{1}) * wave;
}

// A product of groups (products/grouped_matmul.h) whose weights are in NF4.
struct Nf4GroupedProduct {
  int64_t rows, groups;     // Of all groups; a bound on the rows.
  int64_t columns, summed;  // Of the result, and the terms of each sum.
};

// What a GPU multiplies with at a time: the weights of some groups, or columns of one.
struct Nf4GroupPart {
  int64_t groups, columns;
};

// The part whose numbers, of `size` bytes, stay in the second-level cache: as many whole weights as
// fit into 32 MiB. Of a larger weight the part has the columns that Nf4ColumnsOnGpu says for the
// rows that a group has on average.
inline Nf4GroupPart Nf4GroupsOnGpu(const Nf4GroupedProduct& of, size_t size) {
  constexpr int64_t kCache = int64_t{32} << 20;
  const int64_t fit = kCache / (of.columns * of.summed * int64_t(size));
  if (fit > 0) return {.groups = std::min(fit, of.groups), .columns = of.columns};
  const int64_t rows = (of.rows + of.groups - 1) / of.groups;
  return {
      .groups = 1,
      .columns = std::min(Nf4ColumnsOnGpu({.rows = rows, .summed = of.summed}, size), of.columns)};
}

}  // namespace trainyard
