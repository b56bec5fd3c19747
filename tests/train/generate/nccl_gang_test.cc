// Proves that ranks whose GPUs are connected by NCCL write what one rank on a CPU writes. They meet
// as those of `trainyard generate --tensor N --device cuda` do: orders and logits go through the
// host, and NCCL carries the tensors. It does not matter how late the GPUs' streams run.
//
// Bugs it must catch: logits that are read, or tokens that are overwritten, before NCCL is done.

#include <optional>

#include "gmock/gmock.h"
#include "kernels/collective/nccl.h"
#include "kernels/collective/staged.h"
#include "kernels/cuda/failure_text.h"
#include "tests/kernels/call.h"
#include "tests/kernels/collective/rendezvous_fakes.h"
#include "tests/testing/cuda_emulation/streams.h"
#include "tests/train/generate/byte_model.h"
#include "train/generate/continue_prompts.h"
#include "train/generate/tensor_gang.h"

namespace trainyard::testing {
namespace {

std::vector<std::string> Write(const std::string& checkpoint, const Backend& backend,
                               TensorGang* gang) {
  InferenceModel model = *InferenceModel::Load({.checkpoint = checkpoint, .texts = 2, .gang = gang},
                                               InferenceModel::Use::kGrowing, backend);
  std::vector<EncodedPrompt> prompts;
  for (const char* text : {"In the", "a", "longer than the window"}) {
    prompts.push_back(*EncodeText(model.tokenizer(), text));
  }
  std::vector<std::string> texts(prompts.size());
  const absl::Status status =
      ContinuePrompts(model, prompts, {.tokens = 6, .sampling = {.temperature = 1.0}}, Draws::kOwn,
                      [&](size_t i, const WrittenText& of) { texts[i] = of.text; });
  EXPECT_TRUE(status.ok()) << status;
  return texts;
}

// Families with a cache of each kind.
class NcclGang : public ::testing::TestWithParam<std::string> {};

TEST_P(NcclGang, WritesWhatOneRankOnACpuWrites) {
  JobConfig job = ByteJob(GetParam(), FreshDirectory("nccl_gang_" + GetParam()));
  job.precision = PrecisionName::kF32;
  CHECK(RunJob(job)[0].status.ok());
  const std::string checkpoint = job.checkpoint->directory;
  const std::vector<std::string> want = Write(checkpoint, CpuBackend(), nullptr);
  constexpr int kRanks = 2;
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late ? "late" : "at once");
    std::optional<cuda_emulation::Late> streams_are_late;
    if (late) streams_are_late.emplace();
    MemoryRendezvous rendezvous;
    std::vector<std::string> got;
    for (const std::string& thrown : RunWorlds(kRanks, [&](CollectiveWorld& host) {
           const auto world =
               CreateDeviceWorld(host, CreateNcclWorld({.rank = host.rank(),
                                                        .size = kRanks,
                                                        .device = host.rank(),
                                                        .with_failure = cuda::WithFailure},
                                                       rendezvous));
           const auto gang = *TensorGang::Create(*world);
           if (!gang->leads()) {
             const absl::Status followed = FollowLeader(*gang, {.backend = TestedBackend()});
             EXPECT_TRUE(followed.ok()) << followed;
             return;
           }
           got = Write(checkpoint, TestedBackend(), gang.get());
           gang->Tell(TensorGang::Order::kEnd, {});
         })) {
      ASSERT_EQ(thrown, "");
    }
    EXPECT_EQ(got, want);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, NcclGang, ::testing::Values("gpt_oss", "nemotron_h"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
