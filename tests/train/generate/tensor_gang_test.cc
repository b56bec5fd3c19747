// Proves that a model which ranks hold together writes what one rank writes: in every family, texts
// of a batch of prompts of unequal lengths, with texts that end them, drawn and likeliest tokens,
// on two and four ranks. It has one rank's logits of whole windows, weights that stay in bf16 and
// adapters included. All ranks load the same checkpoint although one of them finds damage, and a
// model that the ranks cannot divide is refused before they load it.
//
// Bugs it must catch: ranks that do not agree on what they load or how many texts they keep, and
// logits of the vocabulary in the wrong order.

#include "train/generate/tensor_gang.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "tests/train/generate/byte_model.h"
#include "train/generate/continue_prompts.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

// Calls `lead` on rank 0, while the other ranks follow.
void WithGang(int ranks, const std::function<void(TensorGang&)>& lead) {
  for (const std::string& thrown : RunWorlds(ranks, [&](CollectiveWorld& world) {
         const auto gang = *TensorGang::Create(world);
         if (!gang->leads()) {
           const absl::Status followed = FollowLeader(*gang, {.backend = CpuBackend()});
           EXPECT_TRUE(followed.ok()) << followed;
           return;
         }
         lead(*gang);
         gang->Tell(TensorGang::Order::kEnd, {});
       })) {
    EXPECT_EQ(thrown, "");
  }
}

struct Written {
  std::string text;
  int64_t tokens;
  Ending ending;
  bool operator==(const Written&) const = default;
};
void PrintTo(const Written& written, std::ostream* out) {
  *out << written.tokens << " tokens, " << Name(written.ending) << ": "
       << ::testing::PrintToString(written.text);
}

std::vector<Written> Write(InferenceModel& model, const ContinuationOptions& options) {
  std::vector<EncodedPrompt> prompts;
  for (const char* text : {"In the beginning", "a", "I am longer than the window is by far", "bc",
                           "twelve bytes", "", "x"}) {
    prompts.push_back(*EncodeText(model.tokenizer(), text));
  }
  std::vector<Written> written;
  const absl::Status status =
      ContinuePrompts(model, prompts, options, Draws::kOwn, [&](size_t, const WrittenText& of) {
        written.push_back({of.text, of.tokens, of.ending});
      });
  EXPECT_TRUE(status.ok()) << status;
  return written;
}

class TensorGangTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TensorGangTest, RanksWriteWhatOneRankWrites) {
  InferenceModel::Options options = {.checkpoint = CheckpointOf(GetParam()), .texts = 3};
  const auto load = [&] {
    return *InferenceModel::Load(options, InferenceModel::Use::kGrowing, CpuBackend());
  };
  for (const double temperature : {0.0, 1.0}) {
    ContinuationOptions continuation = {.tokens = 15, .sampling = {.temperature = temperature}};
    options.gang = nullptr;
    InferenceModel one = load();
    // A text that the first one has ends it, and others that have it.
    continuation.stop = {Write(one, continuation)[0].text.substr(4, 3)};
    const std::vector<Written> want = Write(one, continuation);
    EXPECT_EQ(want[0].ending, Ending::kStopText);
    for (const int ranks : {2, 4}) {
      WithGang(ranks, [&](TensorGang& gang) {
        options.gang = &gang;
        InferenceModel model = load();
        EXPECT_EQ(model.texts(), 3u);
        EXPECT_EQ(Write(model, continuation), want) << ranks << " ranks, " << temperature;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorGangTest, ::testing::ValuesIn(Decoders()),
                         [](const auto& info) { return info.param; });

// The logits after a text: of a whole window, and of a text that grows.
std::vector<float> LogitsOf(const std::string& checkpoint, TensorGang* gang) {
  const std::vector<int32_t> text = {3, 1, 4, 1, 5};
  const InferenceModel::Options options = {.checkpoint = checkpoint, .gang = gang};
  InferenceModel whole = *InferenceModel::Load(options, InferenceModel::Use::kWhole, CpuBackend());
  whole.Run(text);
  std::vector<float> logits(whole.Logits(4).begin(), whole.Logits(4).end());
  InferenceModel growing =
      *InferenceModel::Load(options, InferenceModel::Use::kGrowing, CpuBackend());
  growing.Read(std::vector<std::span<const int32_t>>{text});
  logits.insert(logits.end(), growing.After(0).begin(), growing.After(0).end());
  return logits;
}

TEST(TensorGangWeights, HaveTheLogitsOfOneRankAlsoInBf16WithAdaptersAndAPaddedVocabulary) {
  for (const char* const kind : {"bf16", "lora", "dora", "padded"}) {
    const std::string name = kind;
    JobConfig job = ByteJob("llama", FreshDirectory("gang-" + name));
    if (name == "padded") {
      job.model.architecture->fields["vocab"] = int64_t{256};
      job.model.architecture->fields["vocab_multiple"] = int64_t{86};
    } else {
      job.precision = PrecisionName::kBF16;
    }
    if (name.ends_with("ra")) {
      job.adapter =
          AdapterConfig{.lora = LoraConfig{.rank = 2, .alpha = 4, .dora = name == "dora"}};
    }
    CHECK(RunJob(job)[0].status.ok());
    const std::vector<float> want = LogitsOf(job.checkpoint->directory, nullptr);
    for (const int ranks : {2, 4}) {
      WithGang(ranks, [&](TensorGang& gang) {
        EXPECT_THAT(LogitsOf(job.checkpoint->directory, &gang),
                    ::testing::Pointwise(::testing::FloatNear(1e-5f), want))
            << kind << ", " << ranks << " ranks";
      });
    }
  }
}

std::string DataOf(const std::string& checkpoint) { return checkpoint + "/rank-0.bin"; }

TEST(TensorGangLoad, AllRanksPassOverACheckpointInWhichOneFindsDamage) {
  JobConfig job = ByteJob("llama", FreshDirectory("gang-damaged"));
  job.checkpoint->every_steps = 1;
  CHECK(RunJob(job)[0].status.ok());
  const std::string newest = Newest(job.checkpoint->directory).path();
  const auto size = int64_t(std::filesystem::file_size(DataOf(newest)));
  const InferenceModel::Options options = {.checkpoint = job.checkpoint->directory};
  std::string loaded;
  const auto load = [&](TensorGang& gang) {
    InferenceModel::Options mine = options;
    mine.gang = &gang;
    auto model = InferenceModel::Load(mine, InferenceModel::Use::kGrowing, CpuBackend());
    loaded = model.ok() ? model->checkpoint() : model.status().ToString();
    if (model.ok()) Write(*model, {.tokens = 3});
  };
  WithGang(2, load);
  EXPECT_EQ(loaded, newest);
  // In the parts of both ranks of the table of tokens, which comes first.
  std::fstream file(DataOf(newest), std::ios::binary | std::ios::in | std::ios::out);
  for (int64_t at = 0; at < size / 10; at += size / 40) {
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at).put(char(byte ^ 1)).flush();
    WithGang(2, load);
    EXPECT_THAT(loaded, HasSubstr("step-1")) << "byte " << at;
    file.seekp(at).put(char(byte)).flush();
  }
}

TEST(TensorGangLoad, RefusesWhatTheRanksCannotDivide) {
  const std::string checkpoint = CheckpointOf("llama");
  const auto message = [&](int ranks, int64_t window) {
    std::string text;
    WithGang(ranks, [&](TensorGang& gang) {
      const InferenceModel::Options options = {
          .checkpoint = checkpoint, .window = window, .gang = &gang};
      text = std::string(InferenceModel::Load(options, InferenceModel::Use::kWhole, CpuBackend())
                             .status()
                             .message());
    });
    return text;
  };
  EXPECT_EQ(message(4, 0), "");
  EXPECT_THAT(message(3, 0), HasSubstr("heads = 4"));
  EXPECT_THAT(message(3, 0), HasSubstr("found 3; nearest 2"));
}

}  // namespace
}  // namespace trainyard::testing
