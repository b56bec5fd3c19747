// Proves that what is saved is what is loaded, to the bit, under any division into boxes, and that
// a checkpoint of another model is refused by name.

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>

#include "common/sha256.h"
#include "tests/models/another_value.h"
#include "tests/train/checkpoint/fixture.h"
#include "tests/train/checkpoint/random_tensor.h"
#include "tests/train/checkpoint/signed.h"

namespace trainyard::testing_checkpoint {
namespace {

using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(SaveLoad, RoundTripIsExact) {
  const std::string directory = TestDirectory();
  const auto manifest = Save(directory, 3, 40);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto checkpoint = Checkpoint::Open(directory + "/epoch-3/step-40");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->Verify().ok());
  ExpectHolds(*checkpoint, 40);
  const RunState want = State(3, 40), &got = checkpoint->state();
  EXPECT_EQ(got.job_id, want.job_id);
  EXPECT_EQ(got.epoch, want.epoch);
  EXPECT_EQ(got.seed, want.seed);
  EXPECT_EQ(got.deterministic, want.deterministic);
  EXPECT_EQ(got.model, want.model);
  EXPECT_EQ(got.layout, want.layout);
  EXPECT_EQ(got.build, want.build);
  EXPECT_EQ(checkpoint->manifest().size_bytes(),
            4u * 3 * (64 + 2 + 32 + 4));  // The first has two pieces.
  EXPECT_EQ(checkpoint->manifest().size_bytes(), manifest->size_bytes());
}

TEST(SaveLoad, SavingAgainReplaces) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 0, 40).ok());
  ASSERT_TRUE(Save(directory, 0, 40).ok());
  ExpectHolds(*Checkpoint::Open(directory + "/epoch-0/step-40"), 40);
}

// Programs of before there were adapters must refuse the manifest: they would leave adapters out.
TEST(SaveLoad, AnAdapterIsInTheManifestWithAVersionOfItsOwn) {
  const std::vector<float> values(8);
  const SourceBox down{"layer.lora_A.weight", TensorKind::kParameter, DType::kF32, {2, 4},
                       WholeBox({2, 4}),      values.data()};
  RunState state = State(1, 1);
  state.adapter = LoraNumbers{.rank = 2, .alpha = 3.5, .rslora = true, .dora = true};
  const std::string directory = TestDirectory();
  const auto saved = SaveCheckpoint(directory, state, {&down, 1}, LocalStorage());
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_THAT(ToJson(*saved), HasSubstr("\"version\": 4"));
  EXPECT_EQ(Checkpoint::Open(directory + "/epoch-1/step-1")->state().adapter, state.adapter);

  // Those of before there was NF4 would find no base for the adapted layers.
  state.adapter->nf4 = DType::kBF16;
  const auto in_nf4 = SaveCheckpoint(directory, state, {&down, 1}, LocalStorage());
  ASSERT_TRUE(in_nf4.ok()) << in_nf4.status();
  EXPECT_THAT(ToJson(*in_nf4), HasSubstr("\"version\": 5"));
  EXPECT_EQ(Checkpoint::Open(directory + "/epoch-1/step-1")->state().adapter, state.adapter);

  // The first adapters had no magnitudes, and their manifests say nothing of them.
  auto json = nlohmann::ordered_json::parse(ToJson(*saved));
  json.erase("manifest_sha256");
  json["adapter"].erase("dora");
  const auto earlier = ParseManifest(Signed(json));
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  EXPECT_EQ(earlier->state.adapter->rslora, true);
  EXPECT_EQ(earlier->state.adapter->dora, false);
  EXPECT_EQ(earlier->state.adapter->nf4, std::nullopt);

  state.adapter.reset();
  EXPECT_THAT(Text(SaveCheckpoint(directory, state, {&down, 1}, LocalStorage()).status()),
              HasSubstr("is of an adapter, and no adapter is named"));
  state.adapter = LoraNumbers{.rank = 0, .alpha = 1};
  EXPECT_THAT(Text(SaveCheckpoint(directory, state, {&down, 1}, LocalStorage()).status()),
              HasSubstr("adapter: wanted a rank above 0"));
  EXPECT_THAT(ToJson(*Save(directory, 1, 1)), HasSubstr("\"version\": 2"));
}

// Catches a tensor of several chunks of which one is saved again and again.
TEST(SaveLoad, ATensorOfManyChunksIsSavedWhole) {
  const std::string directory = TestDirectory();
  const Shape shape{1024, 1000};
  std::vector<float> values(size_t(shape.elements()));
  std::iota(values.begin(), values.end(), 0.f);
  const SourceBox source{"t",   TensorKind::kParameter, DType::kF32,
                         shape, WholeBox(shape),        values.data()};
  const BoxCopy none = nullptr;
  const BoxCopy copies = [](void* host, const void* from, size_t bytes) {
    std::memcpy(host, from, bytes);
  };
  for (const BoxCopy* to_host : {&none, &copies}) {
    SCOPED_TRACE(*to_host ? "copied to the host" : "on the host");
    const int64_t step = *to_host ? 2 : 1;
    const std::string path = CheckpointPath(directory, 0, step);
    ASSERT_TRUE(BeginCheckpoint(directory, 0, step, LocalStorage()).ok());
    const auto written = WriteRank(path, 0, std::span(&source, 1), LocalStorage(), *to_host);
    ASSERT_TRUE(written.ok()) << written.status();
    ASSERT_TRUE(CommitCheckpoint(directory, State(0, step), *written, LocalStorage()).ok());
    std::vector<float> got(values.size(), -1);
    const TargetBox target{"t",   TensorKind::kParameter, DType::kF32,
                           shape, WholeBox(shape),        got.data()};
    const auto checkpoint = Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const absl::Status loaded = checkpoint->Load(std::span(&target, 1));
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_TRUE(got == values);
  }
}

// Saves the tensor in pieces along one dim, each written by a rank of its own.
void SaveInPieces(RandomTensor& tensor, const std::string& directory) {
  const int cut = int(tensor.Random(uint64_t(tensor.rank)));
  const int64_t step = int64_t(tensor.trial), size = tensor.shape[cut];
  std::vector<StoredTensor> written;
  ASSERT_TRUE(BeginCheckpoint(directory, 0, step, LocalStorage()).ok());
  int64_t writer = 0;
  for (int64_t at = 0; at < size; ++writer) {
    const int64_t count = std::min(size - at, 1 + tensor.Random(3));
    const Box box{WholeBox(tensor.shape).offset.With(cut, at), tensor.shape.With(cut, count)};
    const std::vector<double> values = tensor.Cut(box);
    const SourceBox source{"t", TensorKind::kParameter, DType::kF64, tensor.shape,
                           box, values.data()};
    const auto part = WriteRank(CheckpointPath(directory, 0, step), writer, std::span(&source, 1),
                                LocalStorage());
    ASSERT_TRUE(part.ok()) << part.status();
    written.push_back(part->at(0));
    at += count;
  }
  const auto manifest = CommitCheckpoint(directory, State(0, step), written, LocalStorage());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
}

// Tensors of one to four dims, saved in pieces, loaded into random boxes. Catches wrong strides,
// runs that go on too far, boxes read at the wrong offset, pieces of the wrong place, and a digest
// that knows the layout.
TEST(SaveLoad, AnyBoxesLoadIntoAnyBoxes) {
  const std::string directory = TestDirectory(), whole_directory = directory + "/whole";
  ASSERT_TRUE(MakeDirectories(whole_directory).ok());
  for (uint64_t trial = 0; trial < 60; ++trial) {
    RandomTensor tensor(trial, 6);
    SaveInPieces(tensor, directory);
    const auto checkpoint = Checkpoint::Open(CheckpointPath(directory, 0, int64_t(trial)));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_TRUE(checkpoint->Verify().ok());
    for (int target = 0; target < 8; ++target) {
      const Box box = target == 0 ? WholeBox(tensor.shape) : tensor.RandomBox();
      std::vector<double> got(size_t(box.elements()), -1);
      const TargetBox into{"t", TensorKind::kParameter, DType::kF64, tensor.shape, box, got.data()};
      const absl::Status status = checkpoint->Load(std::span(&into, 1));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(got, tensor.Cut(box)) << "trial " << trial << " into " << ToString(box);
    }
    const SourceBox whole{"t",          TensorKind::kParameter, DType::kF64,
                          tensor.shape, WholeBox(tensor.shape), tensor.values.data()};
    RunState other = State(9, int64_t(trial));
    other.job_id = "another";
    other.layout.data = 5;
    ASSERT_TRUE(SaveCheckpoint(whole_directory, other, std::span(&whole, 1), LocalStorage()).ok());
    EXPECT_EQ(
        Checkpoint::Open(CheckpointPath(whole_directory, 9, int64_t(trial)))->Digest().value(),
        checkpoint->Digest().value());
  }
}

// As docs/formats.md defines it, computed here from the tensors.
TEST(Digest, IsOverSortedTensorsAndTheRunsPlace) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 1, 20).ok());
  std::vector<std::string> lines;
  for (const TestTensor& t : Tensors(20)) {
    Sha256 tensor;
    tensor.Update(t.values.data(), t.values.size() * sizeof(float));
    lines.push_back(absl::StrCat(t.name, " ", Name(t.kind), " f32 ", ToString(t.shape), " ",
                                 tensor.HexDigest(), "\n"));
  }
  std::sort(lines.begin(), lines.end());
  Sha256 hash;
  for (const std::string& line : lines) hash.Update(line);
  hash.Update("step 20\ndata_position 160\nrandom_state 7\n");
  EXPECT_EQ(Checkpoint::Open(CheckpointPath(directory, 1, 20))->Digest().value(), hash.HexDigest());
}

TEST(Digest, ChangesWithEveryPartOfTheState) {
  const std::string directory = TestDirectory();
  std::vector<TestTensor> tensors = Tensors(1);
  const auto digest = [&](const RunState& state) {
    EXPECT_TRUE(SaveCheckpoint(directory, state, Sources(tensors), LocalStorage()).ok());
    return Checkpoint::Open(CheckpointPath(directory, state.epoch, state.step))->Digest().value();
  };
  const std::string base = digest(State(1, 1));
  RunState state = State(1, 1);
  state.epoch = 2;
  state.build = "other";
  state.layout.threads = 9;
  EXPECT_EQ(digest(state), base);
  state = State(1, 2);
  state.data_position = State(1, 1).data_position;
  EXPECT_NE(digest(state), base);
  state = State(1, 1);
  state.data_position += 1;
  EXPECT_NE(digest(state), base);
  state = State(1, 1);
  state.seed += 1;
  EXPECT_NE(digest(state), base);
  std::swap(tensors[0].values, tensors[1].values);
  EXPECT_NE(digest(State(1, 1)), base);
}

TEST(SaveLoad, AnotherModelIsRefusedByItsFirstDifference) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 0, 1).ok());
  const auto checkpoint = Checkpoint::Open(CheckpointPath(directory, 0, 1));
  const ModelConfig saved = State(0, 1).model;
  EXPECT_TRUE(checkpoint->CheckModel(saved).ok());
  EXPECT_THAT(Text(checkpoint->CheckModel({"llama", DecoderConfig()})),
              HasSubstr(": family is qwen3_moe, wanted llama"));
  std::map<MayDiffer, std::set<std::string>> may;
  for (const Field& field : FieldsOf(saved)) {
    ModelConfig other = saved;
    SetField(other, field.rule.name, Another(field));
    may[field.rule.may_differ].insert(field.rule.name);
    for (const MayDiffer use : {MayDiffer::kInSubset, MayDiffer::kAtStart, MayDiffer::kAlways}) {
      const std::string text = Text(checkpoint->CheckModel(other, use));
      if (field.rule.may_differ >= use) {
        EXPECT_THAT(text, ::testing::IsEmpty());
      } else {
        EXPECT_THAT(text, HasSubstr(absl::StrCat(": ", field.rule.name, " is ")));
      }
    }
  }
  using Names = std::set<std::string>;
  EXPECT_EQ(
      may[MayDiffer::kAlways],
      (Names{"attention_dropout", "hidden_dropout", "moe.shared_experts", "moe.bias_update_rate",
             "moe.aux_loss", "moe.aux_loss_scope", "moe.fake_balanced", "vocab_multiple"}));
  EXPECT_EQ(may[MayDiffer::kAtStart],
            (Names{"max_seq", "padding_token", "rope_base", "rope_scaling.factor",
                   "rope_scaling.low_freq_factor", "rope_scaling.high_freq_factor",
                   "rope_scaling.original_max_seq"}));
  EXPECT_EQ(may[MayDiffer::kInSubset], (Names{"layers", "tied"}));
  ModelConfig model = saved;
  SetField(model, "heads", int64_t{4});
  SetField(model, "vocab", int64_t{32});
  EXPECT_THAT(Text(checkpoint->CheckModel(model)), HasSubstr("heads is 2, wanted 4"));

  std::vector<float> values(64, 5.f);
  TargetBox target{"model.embed_tokens.weight", TensorKind::kParameter, DType::kF32, Shape{16, 4},
                   WholeBox(Shape{16, 4}),      values.data()};
  target.name = "model.embed.weight";
  EXPECT_THAT(
      Text(checkpoint->Load(std::span(&target, 1))),
      HasSubstr(
          "tensor model.embed.weight (parameter): wanted f32 [16, 4], the checkpoint has none"));
  target.name = "model.embed_tokens.weight";
  target.global_shape = Shape{8, 8};
  target.box = WholeBox(target.global_shape);
  EXPECT_THAT(Text(checkpoint->Load(std::span(&target, 1))),
              HasSubstr("wanted f32 [8, 8], the checkpoint has f32 [16, 4]"));
  target.global_shape = Shape{16, 4};
  target.box = WholeBox(target.global_shape);
  target.dtype = DType::kF64;
  EXPECT_THAT(Text(checkpoint->Load(std::span(&target, 1))), HasSubstr("wanted f64 [16, 4]"));
  EXPECT_THAT(values, ::testing::Each(5.f));
}

// Bug it must catch: a checkpoint that was copied by hand is loaded as another step.
TEST(SaveLoad, AnotherStepsNameIsRefused) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 2, 40).ok());
  const std::string path = CheckpointPath(directory, 2, 40);
  for (const char* name : {"epoch-2/step-50", "epoch-3/step-40"}) {
    const std::string copy = absl::StrCat(directory, "/", name);
    std::filesystem::create_directories(std::filesystem::path(copy).parent_path());
    std::filesystem::copy(path, copy);
    const absl::Status refused = Checkpoint::Open(copy).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << refused;
    EXPECT_THAT(Text(refused), ::testing::AllOf(HasSubstr(name), HasSubstr("epoch 2, step 40")));
  }
  std::filesystem::copy(path, directory + "/mine");
  EXPECT_TRUE(Checkpoint::Open(directory + "/mine").ok()) << "a name that says nothing";
}

// A link out of the checkpoint's directory would read what the job may not see.
TEST(SaveLoad, LinksAndRootsConfine) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 0, 1).ok());
  const std::string path = CheckpointPath(directory, 0, 1);
  EXPECT_TRUE(Checkpoint::Open(path, Roots({directory})).ok());
  EXPECT_TRUE(Checkpoint::Open("epoch-0/step-1", Roots({directory})).ok());
  EXPECT_EQ(Checkpoint::Open(path, Roots({directory + "/other"})).status().code(),
            absl::StatusCode::kPermissionDenied);
  std::filesystem::rename(path + "/rank-0.bin", directory + "/moved");
  std::filesystem::create_symlink(directory + "/moved", path + "/rank-0.bin");
  EXPECT_EQ(Checkpoint::Open(path).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(ListCheckpoints, SortsByEpochThenStepAndIgnoresStrangers) {
  const std::string directory = TestDirectory();
  EXPECT_TRUE(ListCheckpoints(directory + "/none")->empty());
  for (const auto& [epoch, step] :
       {std::pair(1, 50), std::pair(2, 9), std::pair(2, 10), std::pair(1, 100)}) {
    ASSERT_TRUE(Save(directory, epoch, step).ok());
  }
  ASSERT_TRUE(BeginCheckpoint(directory, 2, 11, LocalStorage()).ok());
  for (const char* name :
       {"epoch-02", "epoch-x", "epoch--1", "epoch-2/step-010", "epoch-2/step-", "other"}) {
    ASSERT_TRUE(MakeDirectories(directory + "/" + name).ok());
  }
  const auto listed = ListCheckpoints(directory);
  std::vector<std::string> paths;
  for (const auto& c : *listed) paths.push_back(c.path.substr(directory.size() + 1));
  EXPECT_THAT(paths, ::testing::ElementsAre("epoch-2/step-11", "epoch-2/step-10", "epoch-2/step-9",
                                            "epoch-1/step-100", "epoch-1/step-50"));
  EXPECT_FALSE(listed->at(0).complete);
  EXPECT_EQ(CompleteCheckpoints(directory)->size(), 4u);
}

}  // namespace
}  // namespace trainyard::testing_checkpoint
