// A small run whose tensors are known functions of the step, saved and compared by several tests.

#pragma once

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "models/arch/decoder_config.h"
#include "train/checkpoint/claim.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/remove.h"
#include "train/checkpoint/save.h"

namespace trainyard::testing_checkpoint {

// Fresh for every test.
inline std::string TestDirectory() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/", info->test_suite_name(), ".", info->name());
  EXPECT_TRUE(RemoveTree(path).ok());
  EXPECT_TRUE(MakeDirectories(path).ok());
  return path;
}

inline RunState State(int64_t epoch, int64_t step) {
  RunState state;
  state.job_id = "j-1";
  state.epoch = epoch;
  state.step = step;
  state.data_position = 8 * step;
  state.seed = 7;
  state.deterministic = false;
  state.model = {"qwen3_moe",
                 DecoderConfig{.layers = 2,
                               .hidden = 4,
                               .ffn = 8,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 2,
                               .vocab = 16,
                               .max_seq = 8,
                               .rope_base = 500000,
                               .rope_scaling = {.factor = 8},
                               .moe = MoeConfig{.experts = 8, .top_k = 2, .expert_ffn = 4}}};
  state.layout.schedule = "ONE_F_ONE_B";
  state.layout.zero = "OPTIMIZER";
  state.build = "test";
  return state;
}

struct TestTensor {
  std::string name;
  TensorKind kind;
  Shape shape;
  std::vector<float> values;
};

// Parameters with m and v, their values a function of step, name and index.
inline std::vector<TestTensor> Tensors(int64_t step) {
  std::vector<TestTensor> tensors;
  for (const auto& [name, shape] :
       {std::make_pair("model.embed_tokens.weight", Shape{16, 4}),
        std::make_pair("model.layers.0.mlp.down_proj.weight", Shape{4, 8}),
        std::make_pair("model.norm.weight", Shape{4})}) {
    for (const TensorKind kind :
         {TensorKind::kParameter, TensorKind::kFirstMoment, TensorKind::kSecondMoment}) {
      TestTensor tensor{name, kind, shape, std::vector<float>(size_t(shape.elements()))};
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        tensor.values[i] = float(Normal(uint64_t(step), HashName(name) + uint64_t(kind), i));
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

inline std::vector<SourceBox> Sources(const std::vector<TestTensor>& tensors) {
  std::vector<SourceBox> boxes;
  for (const TestTensor& t : tensors) {
    boxes.push_back({t.name, t.kind, DType::kF32, t.shape, WholeBox(t.shape), t.values.data()});
  }
  return boxes;
}

// As one rank that holds everything does (SaveSnapshot).
inline absl::StatusOr<Manifest> SaveCheckpoint(const std::string& directory, const RunState& state,
                                               std::span<const SourceBox> boxes, Storage& storage) {
  const std::string path = CheckpointPath(directory, state.epoch, state.step);
  const auto save = [&]() -> absl::StatusOr<Manifest> {
    RETURN_IF_ERROR(BeginCheckpoint(directory, state.epoch, state.step, storage));
    ASSIGN_OR_RETURN(std::vector<StoredTensor> written, WriteRank(path, 0, boxes, storage));
    return CommitCheckpoint(directory, state, std::move(written), storage);
  };
  absl::StatusOr<Manifest> manifest = save();
  // The first error is the one to report; what cannot be removed now, retention removes later.
  if (!manifest.ok()) RemoveCheckpoint(path, storage).IgnoreError();
  return manifest;
}

inline absl::StatusOr<Manifest> Save(const std::string& directory, int64_t epoch, int64_t step,
                                     Storage& storage = LocalStorage()) {
  const std::vector<TestTensor> tensors = Tensors(step);
  return SaveCheckpoint(directory, State(epoch, step), Sources(tensors), storage);
}

// An epoch of job j-1 begins.
inline void Begin(const std::string& directory, int64_t epoch, std::optional<Continued> continued) {
  ASSERT_TRUE(ClaimDirectory(directory, "j-1", epoch, LocalStorage()).ok());
  ASSERT_TRUE(WriteLineage(directory, epoch, continued, LocalStorage()).ok());
}

inline absl::StatusOr<ChosenCheckpoint> NewestGood(const std::vector<std::string>& candidates) {
  return FirstGood(
      candidates, [](const std::string& path) { return ReadCheckpoint(path, Roots(), VerifyAll); });
}

// Loads everything and compares it with what the step's tensors are.
inline void ExpectHolds(const Checkpoint& checkpoint, int64_t step) {
  EXPECT_EQ(checkpoint.state().step, step);
  EXPECT_EQ(checkpoint.state().data_position, 8 * step);
  const std::vector<TestTensor> want = Tensors(step);
  std::vector<TestTensor> got = want;
  std::vector<TargetBox> targets;
  for (TestTensor& t : got) {
    std::fill(t.values.begin(), t.values.end(), 0.f);
    targets.push_back({t.name, t.kind, DType::kF32, t.shape, WholeBox(t.shape), t.values.data()});
  }
  const absl::Status status = checkpoint.Load(targets);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].values, want[i].values) << want[i].name;
}

}  // namespace trainyard::testing_checkpoint
