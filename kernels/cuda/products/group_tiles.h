// Divides the rows of each group into tiles (grouped_matmul.h). The device does this, because the
// groups' sizes are known only there.

#pragma once

#include "kernels/cuda/failure.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace trainyard::cuda {

struct Groups {
  const int32_t* offsets;  // [groups + 1]
  int groups;
  int64_t bound;  // Number of rows of the tensors; a group's rows lie within [0, bound).
  int first = 0;  // The number of the first group, for messages.
  Failure fail = {};

  // CHECKs, on the device, that this group's offsets are legal.
  __device__ void Check(int g) const {
    const int32_t begin = offsets[g], end = offsets[g + 1];
    if (begin < 0 || begin > end || end > bound) {
      fail("grouped_matmul offsets: group % has rows % to % of %", first + g, begin, end, bound);
    }
  }
  // The largest number of tiles that the groups can have.
  int64_t MostTiles(int tile_rows) const { return bound / tile_rows + groups; }
  // Bytes of shared memory that GroupTiles needs.
  size_t shared() const { return size_t(groups + 1) * sizeof(int32_t); }
};

// The rows [begin, begin + rows) of one group.
struct RowTile {
  int group;
  int64_t begin;
  int64_t rows;
};

// The tiles of all groups. All threads of a block must construct it together.
template <int kTileRows>
class GroupTiles {
 public:
  // `first` must be shared memory, [groups + 1].
  __device__ GroupTiles(const Groups& groups, int32_t* first) : groups_(groups), first_(first) {
    int32_t before = 0;
    for (int begin = 0; begin < groups.groups; begin += int(blockDim.x)) {
      const int g = begin + int(threadIdx.x);
      int32_t tiles = 0, all;
      if (g < groups.groups) {
        groups.Check(g);
        tiles = (groups.offsets[g + 1] - groups.offsets[g] + kTileRows - 1) / kTileRows;
      }
      const int32_t through = BlockScan(tiles, &all);
      if (g < groups.groups) first[g] = before + through - tiles;
      before += all;
    }
    if (threadIdx.x == 0) first[groups.groups] = before;
    __syncthreads();
  }

  __device__ int32_t count() const { return first_[groups_.groups]; }

  __device__ RowTile operator[](int32_t tile) const {
    int low = 0, high = groups_.groups;  // first[low] <= tile < first[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_[middle] <= tile ? low : high) = middle;
    }
    const int64_t begin = groups_.offsets[low] + int64_t(tile - first_[low]) * kTileRows;
    const int64_t left = groups_.offsets[low + 1] - begin;
    return {low, begin, left < kTileRows ? left : kTileRows};
  }

 private:
  const Groups& groups_;
  int32_t* first_;  // The first tile of each group, and the number of all tiles.
};

}  // namespace trainyard::cuda
