// Proves what a rank of another layout relies on: that each piece of a stored box has a checksum of
// its own, that shards are whole numbers of pieces, so that a part is read with little beside it,
// and that no damage to what is read passes, wherever it lies.

#include "train/checkpoint/pieces.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/train/checkpoint/bytes_read.h"
#include "tests/train/checkpoint/fixture.h"
#include "tests/train/checkpoint/random_tensor.h"

namespace trainyard::testing_checkpoint {
namespace {

TEST(PieceShape, KeepsTheTableSmallAndItsPiecesLargeEnough) {
  for (const Shape& extent : {Shape{4096, 4096}, Shape{128256, 4096}, Shape{64, 1408, 2048},
                              Shape{50257, 768}, Shape{4096}, Shape{1}, Shape{31}, Shape{97, 89},
                              Shape{2, 3, 5, 7, 11}, Shape{1, 1 << 20}}) {
    for (const size_t element : {2u, 4u, 8u}) {
      SCOPED_TRACE(absl::StrCat(ToString(extent), " of ", element, " bytes"));
      const Shape piece = PieceShape(extent, element);
      const double bytes = double(extent.elements()) * double(element);
      const uint64_t table = PieceTableBytes(extent, piece);
      if (piece.rank() == 0) {
        EXPECT_EQ(table, 0u);
        EXPECT_LT(bytes, 512) << "small enough to be read whole";
        continue;
      }
      EXPECT_LE(table, (1u << 14) * sizeof(uint32_t));
      EXPECT_GE(piece.elements() * int64_t(element), 128);
      // Pieces at the upper ends may be smaller.
      EXPECT_LT(double(table), bytes / 16);
    }
  }
  EXPECT_EQ(PieceShape(Shape{}, 4), Shape());
  EXPECT_EQ(PieceShape(Shape{4096, 4096}, 4), (Shape{32, 32}));
}

// Those by which models are divided.
TEST(PieceShape, AShardIsAWholeNumberOfPieces) {
  for (const Shape& extent : {Shape{4096, 4096}, Shape{1024, 4096}, Shape{14336, 4096},
                              Shape{128256, 4096}, Shape{5120, 13824}, Shape{128, 1536, 2048}}) {
    const Shape piece = PieceShape(extent, 4);
    for (int dim = 0; dim < extent.rank(); ++dim) {
      for (const int64_t parts : {2, 4, 8}) {
        EXPECT_EQ(extent[dim] / parts % piece[dim], 0)
            << "dim " << dim << " of " << extent << " in " << parts << ", pieces " << piece;
      }
    }
  }
}

// Each against zlib's, over the elements of the piece found one by one, in chunks of any size.
TEST(PieceChecksums, AreThoseOfTheElementsOfEachPiece) {
  for (uint64_t trial = 0; trial < 40; ++trial) {
    RandomTensor tensor(trial, 9);
    const Shape& extent = tensor.shape;
    Shape piece = extent;
    for (int i = 0; i < extent.rank(); ++i) {
      piece = piece.With(i, 1 + tensor.Random(uint64_t(extent[i])));
    }
    PieceChecksums sums(extent, piece, sizeof(double));
    for (size_t at = 0; at < tensor.values.size();) {
      const size_t count = std::min(tensor.values.size() - at, size_t(1 + tensor.Random(50)));
      sums.Update(&tensor.values[at], count * sizeof(double));
      at += count;
    }
    const Shape counts = PieceCounts(extent, piece);
    ASSERT_EQ(int64_t(sums.sums().size()), counts.elements());
    for (int64_t number = 0; number < counts.elements(); ++number) {
      Box box = WholeBox(extent);
      int64_t rest = number;
      for (int i = extent.rank() - 1; i >= 0; --i) {
        const int64_t begin = rest % counts[i] * piece[i];
        box.offset = box.offset.With(i, begin);
        box.extent = box.extent.With(i, std::min(piece[i], extent[i] - begin));
        rest /= counts[i];
      }
      const std::vector<double> elements = tensor.Cut(box);
      EXPECT_EQ(sums.sums()[size_t(number)],
                ::crc32_z(0, reinterpret_cast<const Bytef*>(elements.data()),
                          elements.size() * sizeof(double)))
          << "trial " << trial << ", " << ToString(box) << " of " << extent << " by " << piece;
    }
  }
}

// Saves one tensor "t" as one rank, and opens the checkpoint.
Checkpoint Saved(const std::string& directory, const Shape& shape, std::span<const float> values) {
  const SourceBox box{"t",   TensorKind::kParameter, DType::kF32,
                      shape, WholeBox(shape),        values.data()};
  CHECK(SaveCheckpoint(directory, State(0, 1), std::span(&box, 1), LocalStorage()).ok());
  return Checkpoint::Open(CheckpointPath(directory, 0, 1)).value();
}

TEST(Pieces, AShardIsReadWithAtMostATenthMore) {
  const std::string directory = TestDirectory();
  for (const Shape& shape : {Shape{256, 64}, Shape{1000, 96}, Shape{16, 48, 40}, Shape{64, 64}}) {
    std::vector<float> values(size_t(shape.elements()));
    std::iota(values.begin(), values.end(), 0.5f);
    const Checkpoint checkpoint = Saved(directory, shape, values);
    for (int dim = 0; dim < shape.rank(); ++dim) {
      for (const int64_t parts : {1, 2, 4, 8}) {
        for (int64_t part = 0; part < parts; ++part) {
          const int64_t size = shape[dim] / parts;
          const Box box{WholeBox(shape).offset.With(dim, part * size), shape.With(dim, size)};
          std::vector<float> got(size_t(box.elements()));
          const TargetBox into{"t", TensorKind::kParameter, DType::kF32, shape, box, got.data()};
          const int64_t read =
              BytesReadBy([&] { EXPECT_TRUE(checkpoint.Load(std::span(&into, 1)).ok()); });
          EXPECT_LE(double(read), 1.1 * double(got.size() * sizeof(float)))
              << ToString(box) << " of " << shape;
          std::vector<float> wanted(got.size());
          ForEachSharedRun(WholeBox(shape), box, [&](int64_t from, int64_t to, int64_t count) {
            std::copy_n(&values[size_t(from)], count, &wanted[size_t(to)]);
            return absl::OkStatus();
          }).IgnoreError();
          EXPECT_EQ(got, wanted) << ToString(box) << " of " << shape;
        }
      }
    }
  }
}

// One byte is changed anywhere, in the values or in the checksums. A part is then loaded either as
// it was saved, or not at all; all of them are found by Verify.
TEST(Pieces, NoDamageToWhatIsReadPasses) {
  const std::string directory = TestDirectory();
  const Shape shape{24, 40};
  std::vector<float> values(size_t(shape.elements()));
  std::iota(values.begin(), values.end(), 0.5f);
  const Checkpoint checkpoint = Saved(directory, shape, values);
  const std::string file = checkpoint.path() + "/rank-0.bin";
  const std::string good = ReadFile(file).value();
  int refused = 0, untouched = 0;
  for (uint64_t trial = 0; trial < 1'000; ++trial) {
    const auto random = [&](uint64_t which, uint64_t below) {
      return int64_t(RandomBits(5, trial, which) % below);
    };
    const size_t at = size_t(random(0, good.size()));
    const char bad = char(good[at] ^ (1 << random(1, 8)));
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(std::streamoff(at)).put(bad).flush();
    Box box = WholeBox(shape);
    for (int i = 0; i < 2; ++i) {
      box.offset = box.offset.With(i, random(2 + uint64_t(i), uint64_t(shape[i])));
      box.extent =
          box.extent.With(i, 1 + random(4 + uint64_t(i), uint64_t(shape[i] - box.offset[i])));
    }
    std::vector<float> got(size_t(box.elements()));
    const TargetBox into{"t", TensorKind::kParameter, DType::kF32, shape, box, got.data()};
    const absl::Status status = checkpoint.Load(std::span(&into, 1));
    if (status.ok()) {
      ++untouched;
      for (int64_t row = 0, i = 0; row < box.extent[0]; ++row) {
        for (int64_t column = 0; column < box.extent[1]; ++column, ++i) {
          ASSERT_EQ(got[size_t(i)],
                    values[size_t((box.offset[0] + row) * shape[1] + box.offset[1] + column)])
              << "byte " << at << ", " << ToString(box);
        }
      }
    } else {
      ++refused;
      ASSERT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  ::testing::HasSubstr("tensor t (parameter), box "));
    }
    EXPECT_TRUE(absl::IsDataLoss(checkpoint.Verify())) << "byte " << at;
    stream.seekp(std::streamoff(at)).put(good[at]).flush();
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(untouched, 100);
  EXPECT_TRUE(checkpoint.Verify().ok());
}

// Bug it must catch: only the first box of a tensor is looked at, and the files of other ranks
// pass.
TEST(Pieces, EveryRanksFileIsLookedAt) {
  const std::string directory = TestDirectory(), path = CheckpointPath(directory, 0, 1);
  const Shape shape{8, 16};
  const std::vector<float> values(size_t(shape.elements()));  // Zeros.
  ASSERT_TRUE(BeginCheckpoint(directory, 0, 1, LocalStorage()).ok());
  std::vector<StoredTensor> written;
  for (int rank = 0; rank < 4; ++rank) {
    const SourceBox box{"t",   TensorKind::kParameter,        DType::kF32,
                        shape, {Shape{2 * rank, 0}, {2, 16}}, values.data()};
    written.push_back(WriteRank(path, rank, std::span(&box, 1), LocalStorage())->at(0));
  }
  ASSERT_TRUE(CommitCheckpoint(directory, State(0, 1), written, LocalStorage()).ok());
  const Checkpoint checkpoint = Checkpoint::Open(path).value();
  std::vector<float> got(values.size());
  const TargetBox whole{"t",   TensorKind::kParameter, DType::kF32,
                        shape, WholeBox(shape),        got.data()};
  ASSERT_TRUE(checkpoint.Verify().ok());
  for (int rank = 0; rank < 4; ++rank) {
    const std::string name = absl::StrCat("rank-", rank, ".bin");
    std::fstream stream(path + "/" + name, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(70).put(1).flush();
    for (const absl::Status& status : {checkpoint.Verify(), checkpoint.Load(std::span(&whole, 1)),
                                       checkpoint.Digest().status()}) {
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name));
    }
    stream.seekp(70).put(0).flush();
  }
  EXPECT_TRUE(checkpoint.Verify().ok());
}

// Bug it must catch: what an earlier Trainyard saved, without pieces, cannot be read, or a part of
// it is not checked.
TEST(Pieces, ACheckpointWithoutThemIsReadAndChecked) {
  const std::string directory = TestDirectory(), path = CheckpointPath(directory, 0, 1);
  const Shape shape{16, 16};
  std::vector<float> values(size_t(shape.elements()));
  std::iota(values.begin(), values.end(), 0.5f);
  {
    const Checkpoint now = Saved(directory, shape, values);
    ASSERT_NE(now.manifest().tensors[0].boxes[0].piece.rank(), 0);
    std::vector<StoredTensor> tensors = now.manifest().tensors;
    tensors[0].boxes[0].piece = Shape();
    ASSERT_TRUE(CommitCheckpoint(directory, now.state(), tensors, LocalStorage()).ok());
    std::filesystem::resize_file(path + "/rank-0.bin", values.size() * sizeof(float));
  }
  const Checkpoint checkpoint = Checkpoint::Open(path).value();
  EXPECT_TRUE(checkpoint.Verify().ok());
  std::vector<float> got(16);
  const TargetBox row{"t",   TensorKind::kParameter, DType::kF32,
                      shape, {Shape{3, 0}, {1, 16}}, got.data()};
  ASSERT_TRUE(checkpoint.Load(std::span(&row, 1)).ok());
  EXPECT_THAT(got, testing::ElementsAreArray(values.begin() + 48, values.begin() + 64));
  std::fstream stream(path + "/rank-0.bin", std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(900).put(1).flush();
  EXPECT_TRUE(absl::IsDataLoss(checkpoint.Load(std::span(&row, 1))));
  EXPECT_TRUE(absl::IsDataLoss(checkpoint.Verify()));
}

}  // namespace
}  // namespace trainyard::testing_checkpoint
