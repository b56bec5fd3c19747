// Proves that overlapping boxes are found wherever they are, by comparing pair by pair, and that as
// many boxes as the largest gang writes are compared in no time worth measuring.

#include "train/checkpoint/box.h"

#include <gmock/gmock.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "train/checkpoint/manifest.h"

namespace trainyard {
namespace {

bool AnyTwoOverlap(const std::vector<Box>& boxes) {
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (Intersection(boxes[i], boxes[j])) return true;
    }
  }
  return false;
}

Shape At(std::mt19937_64& random, int rank, int64_t least, int64_t most) {
  std::vector<int64_t> dims;
  for (int i = 0; i < rank; ++i) {
    dims.push_back(std::uniform_int_distribution<int64_t>(least, most)(random));
  }
  return Shape(dims);
}

// A box and what is left of a tensor, cut again and again: a tiling, in no order.
std::vector<Box> Tiling(std::mt19937_64& random, const Shape& shape, int cuts) {
  std::vector<Box> boxes = {WholeBox(shape)};
  for (int i = 0; i < cuts; ++i) {
    Box& box = boxes[random() % boxes.size()];
    const int dim = int(random() % size_t(shape.rank()));
    if (box.extent[dim] < 2) continue;
    Box rest = box;
    const int64_t at = 1 + int64_t(random() % size_t(box.extent[dim] - 1));
    rest.offset = rest.offset.With(dim, box.offset[dim] + at);
    rest.extent = rest.extent.With(dim, box.extent[dim] - at);
    box.extent = box.extent.With(dim, at);
    boxes.push_back(rest);
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

TEST(FindOverlap, AgreesWithComparingPairByPair) {
  std::mt19937_64 random(1);
  int overlapping = 0, disjoint = 0;
  for (int round = 0; round < 4000; ++round) {
    const int rank = 1 + round % 4;
    std::vector<Box> boxes = Tiling(random, At(random, rank, 4, 9), round % 30);
    if (round % 3 == 0) {  // One moved or grown by a bit.
      Box& box = boxes[random() % boxes.size()];
      const int dim = int(random() % size_t(rank));
      box.offset = box.offset.With(dim, box.offset[dim] + int64_t(random() % 3) - 1);
      box.extent = box.extent.With(dim, box.extent[dim] + int64_t(random() % 2));
    }
    if (round % 5 == 0) boxes.push_back({At(random, rank, 0, 6), At(random, rank, 1, 2)});
    const bool want = AnyTwoOverlap(boxes);
    const auto found = FindOverlap(boxes);
    ASSERT_EQ(found.has_value(), want) << "round " << round;
    EXPECT_EQ(found && Intersection(found->first, found->second), want) << "round " << round;
    ++(want ? overlapping : disjoint);
  }
  EXPECT_GT(overlapping, 1000);
  EXPECT_GT(disjoint, 1000);
  std::vector<Box> scalars = {{Shape{}, Shape{}}};
  EXPECT_FALSE(FindOverlap(scalars));
  scalars.push_back(scalars[0]);
  EXPECT_TRUE(FindOverlap(scalars));
}

StoredTensor Divided(int64_t rows, int64_t columns) {
  StoredTensor tensor{.name = "w", .dtype = DType::kBF16, .shape = {rows, columns}, .boxes = {}};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      tensor.boxes.push_back({{Shape{row, column}, Shape{1, 1}},
                              absl::StrCat("rank-", row, ".bin"),
                              uint64_t(column) * 2,
                              std::string(64, '0')});
    }
  }
  return tensor;
}

// Comparing pair by pair would take minutes. Catches a bound that refuses the checkpoint of a gang
// whose size is legal.
TEST(Manifest, HoldsTheBoxesOfTheLargestGang) {
  RunState state;
  state.job_id = "j-1";
  const StoredTensor whole = Divided(65'536, 3);
  EXPECT_TRUE(MakeManifest(state, {whole}).ok());
  StoredTensor twice = whole;
  twice.boxes[100'000].box = twice.boxes[100'001].box;
  EXPECT_THAT(std::string(MakeManifest(state, {twice}).status().message()),
              ::testing::HasSubstr("overlap"));
  EXPECT_THAT(std::string(MakeManifest(state, {Divided(65'536, 4)}).status().message()),
              ::testing::HasSubstr("wanted 1 to 196608 boxes, found 262144"));
}

}  // namespace
}  // namespace trainyard
