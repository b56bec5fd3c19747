// Proves that arrays of latents become the samples that a diffusion model declares: tokens in the
// declared orders, noise by the formulas (from f64 sums written here), and all of it a function of
// seed, sample and epoch alone. Every kind of file that does not fit is refused by its name.

#include "train/data/arrays.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/testing/npy.h"
#include "train/data/batch_reader.h"
#include "train/data/diffusion.h"
#include "train/data/npy.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;
using trainyard::testing::Npy;

constexpr int64_t kTimes = 1000, kClasses = 10;

// What a diffusion transformer declares.
std::vector<InputSpec> Inputs(int64_t channels, int64_t patch, int64_t times = kTimes) {
  constexpr auto kReal = InputSpec::Kind::kReal;
  constexpr auto kSample = InputSpec::Unit::kSample;
  return {{.name = "patches", .kind = kReal, .shape = {channels, patch, patch}},
          {.name = "target", .kind = kReal, .shape = {patch, patch, channels}},
          {.name = "time", .unit = kSample, .limit = times},
          {.name = "label", .unit = kSample, .limit = kClasses + 1}};
}

struct Sample {
  std::vector<float> patches, target;
  int32_t time, label;
  bool operator==(const Sample&) const = default;
};

Sample ReadSample(const Dataset& data, int64_t index, int64_t epoch = 0) {
  std::vector<InputData> inputs = {std::vector<float>(), std::vector<float>(),
                                   std::vector<int32_t>(), std::vector<int32_t>()};
  const absl::Status status = data.Read({index, epoch}, inputs);
  EXPECT_TRUE(status.ok()) << status;
  return {std::get<1>(inputs[0]), std::get<1>(inputs[1]), std::get<0>(inputs[2]).at(0),
          std::get<0>(inputs[3]).at(0)};
}

class Arrays : public ::testing::Test {
 protected:
  Arrays() : directory_(::testing::TempDir() + "/arrays") {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
    source_ = {.latents = "x.npy", .labels = "y.npy"};
  }

  void Write(const std::string& name, const std::string& bytes) const {
    EXPECT_TRUE(WriteFileAtomic(directory_ + "/" + name, bytes).ok());
  }
  // `count` latents of [channels, height, width]: element i is i / 4 - 3.
  void WriteArrays(int64_t count, int64_t channels, int64_t height, int64_t width) const {
    std::vector<float> latents(size_t(count * channels * height * width));
    for (size_t i = 0; i < latents.size(); ++i) latents[i] = float(i) / 4 - 3;
    Write("x.npy", Npy("<f4", {count, channels, height, width}, latents));
    std::vector<int64_t> labels(static_cast<size_t>(count));
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = int64_t(i) % kClasses;
    Write("y.npy", Npy("<i8", {count}, labels));
  }
  absl::StatusOr<DataSplits> Open(int64_t channels, int64_t patch, int64_t sequence,
                                  uint64_t seed = 1, int64_t times = kTimes) const {
    return OpenData({.source = source_,
                     .inputs = Inputs(channels, patch, times),
                     .sequence = sequence,
                     .seed = seed,
                     .roots = Roots({directory_})});
  }
  std::string Refusal(int64_t channels, int64_t patch, int64_t sequence) const {
    const absl::Status status = Open(channels, patch, sequence).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  const std::string directory_;
  ArraysData source_;
};

// Two samples of 2 channels, 6 x 6 places, in patches of 2 x 2: 9 tokens of 8 elements. Noise is
// taken from the target, put into the formula with the place that the test knows, and must give
// the patches.
TEST_F(Arrays, TokensArePatchesInTheDeclaredOrders) {
  WriteArrays(2, 2, 6, 6);
  const auto splits = Open(2, 2, 9);
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->num_samples(), 2);
  EXPECT_EQ(splits->train->inputs(), Inputs(2, 2));
  for (const int64_t n : {0, 1}) {
    const Sample sample = ReadSample(*splits->train, n);
    ASSERT_EQ(sample.patches.size(), 72u);
    ASSERT_EQ(sample.target.size(), 72u);
    double abar = 1;
    for (int s = 0; s <= sample.time; ++s) abar *= 1 - (1e-4 + s * (0.02 - 1e-4) / 999);
    for (int64_t token = 0; token < 9; ++token) {
      const int64_t row = token / 3 * 2, column = token % 3 * 2;
      for (int64_t c = 0; c < 2; ++c) {
        for (int64_t y = 0; y < 2; ++y) {
          for (int64_t x = 0; x < 2; ++x) {
            const double x0 = double(((n * 2 + c) * 6 + row + y) * 6 + column + x) / 4 - 3;
            const double eps = sample.target[size_t(token * 8 + (y * 2 + x) * 2 + c)];
            const double want = std::sqrt(abar) * x0 + std::sqrt(1 - abar) * eps;
            // Both the noise and the sum are rounded to f32.
            EXPECT_NEAR(sample.patches[size_t(token * 8 + (c * 2 + y) * 2 + x)], want,
                        0x1p-24 * (std::abs(want) + std::abs(eps)))
                << token << ": " << c << ", " << y << ", " << x;
          }
        }
      }
    }
    EXPECT_EQ(sample.label, n);
  }
}

TEST_F(Arrays, HalfPrecisionLatentsAreThoseValues) {
  WriteArrays(1, 1, 2, 2);
  const Sample want = ReadSample(*Open(1, 2, 1)->train, 0);
  Write("x.npy", Npy<uint16_t>("<f2", {1, 1, 2, 2}, {0xc200, 0xc180, 0xc100, 0xc080}));
  EXPECT_EQ(ReadSample(*Open(1, 2, 1)->train, 0), want);
}

// v and eps of the same sample say what x0 was: v = a eps - s x0 and x = a x0 + s eps.
TEST_F(Arrays, VelocityIsThatOfTheSameNoise) {
  WriteArrays(3, 1, 4, 4);
  for (int64_t n = 0; n < 3; ++n) {
    source_.prediction_type = PredictionType::kEpsilon;
    const Sample eps = ReadSample(*Open(1, 2, 4)->train, n);
    source_.prediction_type = PredictionType::kVPrediction;
    const Sample v = ReadSample(*Open(1, 2, 4)->train, n);
    EXPECT_EQ(v.patches, eps.patches);
    EXPECT_EQ(v.time, eps.time);
    const NoiseSchedule::Share share = NoiseSchedule(kTimes).at(v.time);
    for (size_t i = 0; i < v.target.size(); ++i) {  // One channel: both orders are the same.
      const double x0 = share.sample * v.patches[i] - share.noise * v.target[i];
      const int64_t token = int64_t(i) / 4, place = int64_t(i) % 4;
      const int64_t row = token / 2 * 2 + place / 2, column = token % 2 * 2 + place % 2;
      // What was rounded to f32: x, v and eps.
      const double rounding =
          0x1p-24 * (std::abs(v.patches[i]) + 2 * std::abs(v.target[i]) + std::abs(eps.target[i]));
      EXPECT_NEAR(x0, double(n * 16 + row * 4 + column) / 4 - 3, rounding);
      EXPECT_NEAR(share.sample * eps.target[i] - share.noise * x0, v.target[i], rounding);
    }
  }
}

TEST(NoiseSchedule, IsThatOfDdpm) {
  const NoiseSchedule schedule(1000);
  EXPECT_EQ(schedule.times(), 1000);
  for (const int64_t t : {0, 1, 2, 500, 999}) {
    double log_abar = 0;
    for (int64_t s = 0; s <= t; ++s) {
      log_abar += std::log1p(-(1e-4 + double(s) * (0.02 - 1e-4) / 999));
    }
    EXPECT_NEAR(schedule.at(t).sample, std::exp(log_abar / 2), 1e-12);
    EXPECT_NEAR(schedule.at(t).noise, std::sqrt(-std::expm1(log_abar)), 1e-12);
  }
  // "abar_T is nearly 0": 4.0e-5, as published for these betas.
  EXPECT_NEAR(schedule.at(999).sample * schedule.at(999).sample, 4.04e-5, 0.005e-5);
}

// Bug it must catch: with fewer times, the last one leaves much of the sample.
TEST(NoiseSchedule, OfFewerTimesEndsAsNoisy) {
  for (const int64_t times : {25, 100, 10'000}) {
    const NoiseSchedule schedule(times);
    double log_abar = 0;
    for (int64_t s = 0; s < times; ++s) {
      log_abar += std::log1p(-(0.1 + double(s) * (20 - 0.1) / double(times - 1)) / double(times));
    }
    EXPECT_NEAR(schedule.at(times - 1).sample, std::exp(log_abar / 2), 1e-12);
    EXPECT_LT(schedule.at(times - 1).sample, 0.0066) << times;
  }
}

TEST_F(Arrays, ASampleIsAFunctionOfSeedSampleAndEpoch) {
  WriteArrays(4, 1, 4, 4);
  source_.label_dropout = 0.5;
  const auto a = Open(1, 2, 4, 1), again = Open(1, 2, 4, 1), other = Open(1, 2, 4, 2);
  const Sample first = ReadSample(*a->train, 2, 3);
  ReadSample(*again->train, 1, 3);  // What was read before does not matter.
  EXPECT_EQ(ReadSample(*again->train, 2, 3), first);
  for (const Sample& different : {ReadSample(*a->train, 2, 4), ReadSample(*a->train, 3, 3),
                                  ReadSample(*other->train, 2, 3)}) {
    EXPECT_NE(different.target, first.target);
  }
}

// The noise of a sample is that of its latent, however the model cuts it.
TEST_F(Arrays, NoiseDoesNotDependOnThePatches) {
  WriteArrays(1, 1, 4, 4);
  const Sample small = ReadSample(*Open(1, 1, 16)->train, 0),
               large = ReadSample(*Open(1, 4, 1)->train, 0);
  EXPECT_EQ(small.target, large.target);
  EXPECT_EQ(small.patches, large.patches);
}

// 400 samples of 64 elements over two epochs: N = 51,200 values of a standard normal. Their mean
// has the deviation 1 / sqrt(N), the mean of their squares sqrt(2 / N), that of products of
// neighbours 1 / sqrt(N): 5 of them each. Times and dropped labels: 800 draws.
TEST_F(Arrays, NoiseTimesAndDroppedLabelsHaveTheirDistributions) {
  WriteArrays(400, 1, 8, 8);
  source_.label_dropout = 0.3;
  const auto splits = Open(1, 8, 1);
  double sum = 0, squares = 0, products = 0, count = 0, times = 0, dropped = 0;
  std::set<int32_t> seen;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (int64_t n = 0; n < 400; ++n) {
      const Sample sample = ReadSample(*splits->train, n, epoch);
      for (size_t i = 0; i < 64; ++i) {
        sum += sample.target[i];
        squares += double(sample.target[i]) * sample.target[i];
        products += double(sample.target[i]) * sample.target[(i + 1) % 64];
        ++count;
      }
      ASSERT_GE(sample.time, 0);
      ASSERT_LT(sample.time, kTimes);
      times += sample.time;
      seen.insert(sample.time);
      if (sample.label == kClasses) {
        ++dropped;
      } else {
        EXPECT_EQ(sample.label, n % kClasses);
      }
    }
  }
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(products / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(times / 800, 499.5, 5 * 288.7 / std::sqrt(800.0));
  // 800 draws of 1000 leave e^-0.8 of them unseen: 551 are seen, with a deviation below 13.
  EXPECT_NEAR(double(seen.size()), 551, 5 * 13);
  EXPECT_NEAR(dropped / 800, 0.3, 5 * std::sqrt(0.3 * 0.7 / 800));
}

TEST_F(Arrays, ValidationIsTheEndAndTheSameInEveryEpochWithAllLabels) {
  WriteArrays(10, 1, 2, 2);
  source_.validation_fraction = 0.35;
  source_.label_dropout = 1;
  const auto splits = Open(1, 2, 1);
  ASSERT_TRUE(splits.ok()) << splits.status();
  EXPECT_EQ(splits->train->num_samples(), 7);
  ASSERT_EQ(splits->validation->num_samples(), 3);
  for (int64_t i = 0; i < 3; ++i) {
    const Sample sample = ReadSample(*splits->validation, i, 0);
    EXPECT_EQ(sample.label, 7 + i);
    EXPECT_EQ(ReadSample(*splits->validation, i, 5), sample);
  }
  EXPECT_EQ(ReadSample(*splits->train, 6).label, kClasses);
  source_.validation_fraction = 0.05;
  EXPECT_THAT(Refusal(1, 2, 1),
              HasSubstr("x.npy: validation_fraction 0.05 of 10 samples holds out"));
}

// A run that goes on at position 12 reads what an undisturbed one reads there, however many ranks
// it has; epochs of 5 samples meet within the batches.
TEST_F(Arrays, ResumedRunsReadTheSameBits) {
  WriteArrays(5, 1, 4, 4);
  const auto splits = Open(1, 2, 4);
  const auto step = [&](int64_t position, int64_t micro, int64_t ranks) {
    std::vector<float> targets;
    const BatchShape shape{.global = 4, .micro = micro, .data_parallel = ranks};
    for (int64_t m = 0; m < 4 / micro / ranks; ++m) {
      for (int64_t rank = 0; rank < ranks; ++rank) {
        BatchShape mine = shape;
        mine.data_rank = rank;
        const auto batch =
            BatchReader(*splits->train, SampleOrder::kShuffled, 1, mine).Read(position, m);
        EXPECT_TRUE(batch.ok()) << batch.status();
        const auto& read = std::get<std::vector<float>>(batch->at("target"));
        targets.insert(targets.end(), read.begin(), read.end());
      }
    }
    return targets;
  };
  std::map<int64_t, std::vector<float>> undisturbed;
  for (int64_t position = 0; position < 20; position += 4) {
    undisturbed[position] = step(position, 2, 1);
  }
  for (const int64_t position : {12, 16}) {
    EXPECT_EQ(step(position, 2, 2), undisturbed[position]);
    EXPECT_EQ(step(position, 1, 4), undisturbed[position]);
  }
  EXPECT_NE(undisturbed[12], undisturbed[16]);
}

TEST_F(Arrays, RefusesLatentsThatDoNotFitTheModel) {
  WriteArrays(3, 3, 8, 8);
  EXPECT_TRUE(Open(3, 2, 16).ok());
  EXPECT_THAT(
      Refusal(4, 2, 16),
      HasSubstr("x.npy: wanted floating-point latents [N, 4, 8, 8], N > 0: batch.sequence = "
                "16 patches of the model's 4 x 2 x 2, found <f4 [3, 3, 8, 8]"));
  // As many elements in a patch, and as many patches.
  WriteArrays(3, 16, 4, 4);
  EXPECT_THAT(Refusal(4, 2, 16), HasSubstr("wanted floating-point latents [N, 4, 8, 8]"));
  WriteArrays(3, 1, 16, 16);
  EXPECT_THAT(Refusal(4, 2, 16), HasSubstr("wanted floating-point latents [N, 4, 8, 8]"));
  WriteArrays(3, 3, 4, 16);  // As many patches, in another grid.
  EXPECT_THAT(Refusal(3, 2, 16), HasSubstr("[N, 3, 8, 8], N > 0"));
  WriteArrays(3, 3, 8, 8);
  EXPECT_THAT(Refusal(3, 2, 15), HasSubstr("batch.sequence = 15 patches"));
  Write("x.npy", Npy<float>("<f4", {3, 3, 4}, std::vector<float>(36)));
  EXPECT_THAT(Refusal(3, 2, 16), HasSubstr("found <f4 [3, 3, 4]"));
  Write("x.npy", Npy<int32_t>("<i4", {3, 3, 8, 8}, std::vector<int32_t>(576)));
  EXPECT_THAT(Refusal(3, 2, 16), HasSubstr("found <i4 [3, 3, 8, 8]"));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 3, 8, 8}, {3, 0, 8, 8}}) {
    Write("x.npy", Npy<float>("<f4", shape, {}));
    EXPECT_THAT(Refusal(3, 2, 16), HasSubstr("N > 0"));
  }
  Write("x.npy", "x");
  EXPECT_THAT(Refusal(3, 2, 16), HasSubstr("x.npy: does not begin as an .npy file"));
  source_.latents = "/etc/passwd";
  EXPECT_EQ(Open(3, 2, 16).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(Arrays, RefusesLabelsThatDoNotFit) {
  WriteArrays(3, 1, 2, 2);
  const auto refusal = [&](const std::string& labels) {
    Write("y.npy", labels);
    return Refusal(1, 2, 1);
  };
  EXPECT_THAT(refusal(Npy<int64_t>("<i8", {2}, {0, 1})),
              HasSubstr("y.npy: wanted as many integers as there are latents, [3], found <i8 [2]"));
  EXPECT_THAT(refusal(Npy<int64_t>("<i8", {3, 1}, {0, 1, 2})), HasSubstr("found <i8 [3, 1]"));
  EXPECT_THAT(refusal(Npy<float>("<f4", {3}, {0, 1, 2})), HasSubstr("found <f4 [3]"));
  EXPECT_THAT(refusal(Npy<int8_t>("|i1", {3}, {0, -1, 2})),
              HasSubstr("y.npy: label -1 of sample 1, wanted 0 to 9, the model's classes"));
  // The class above the last one is the dropped label's.
  EXPECT_THAT(refusal(Npy<uint8_t>("|u1", {3}, {0, 9, 10})), HasSubstr("label 10 of sample 2"));
  Write("y.npy", Npy<uint8_t>("|u1", {3}, {0, 9, 9}));
  EXPECT_TRUE(Open(1, 2, 1).ok());
}

TEST_F(Arrays, ALatentThatIsNotFiniteIsNamedWhenItIsRead) {
  WriteArrays(2, 1, 2, 2);
  Write("x.npy", Npy<float>("<f4", {2, 1, 2, 2}, {0, 1, 2, 3, 4, 5, INFINITY, 7}));
  const auto splits = Open(1, 2, 1);
  ReadSample(*splits->train, 0);
  std::vector<InputData> inputs = {std::vector<float>(), std::vector<float>(),
                                   std::vector<int32_t>(), std::vector<int32_t>()};
  const absl::Status status = splits->train->Read({.index = 1}, inputs);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("x.npy: element [1, 0, 1, 0] is inf, wanted a finite number"));
}

}  // namespace
}  // namespace trainyard
