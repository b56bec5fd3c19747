// Proves that a layout changes nothing that is trained, through the whole service: a job on up to
// 16 processes over Gloo, in f32, has the losses of the same job on one, step by step, and in its
// checkpoint the same parameters and moments of their gradients. A sample: every layout adds
// something that those above it do not have. All combinations, in f64 and with threads for ranks,
// are tests/train/step/layouts_test's.

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/service.h"
#include "tests/e2e/tiny_chats.h"
#include "train/checkpoint/load.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 8;
constexpr double kLearningRate = 3e-3;
// Above the gradients' rounding errors. AdamW divides a gradient by its size plus this: with the
// usual 1e-8 a gradient near zero makes its rounding error a step of full length.
constexpr double kEpsilon = 1e-5;

struct GlobalTensor {
  TensorKind kind;
  std::vector<float> values;
};

struct Trained {
  // By step. What only some jobs have is 0 for others.
  std::vector<double> loss, load_balancing_loss, reward_margin;
  std::map<std::string, GlobalTensor> tensors;  // "m model.norm.weight"
  std::string schedule;                         // Under which the trainers ran.
};

// Of the newest checkpoint below the directory and its base, whose bytes match their checksums.
void ReadCheckpoint(const std::string& directory, Trained& trained) {
  const auto found = FindCheckpoint(directory);
  if (!found.ok() || !found->checkpoint) {
    ADD_FAILURE() << directory << ": " << found.status();
    return;
  }
  trained.schedule = found->checkpoint->manifest().state.layout.schedule;
  std::vector<StoredTensor> tensors = found->checkpoint->manifest().tensors;
  if (const Manifest* const base = found->checkpoint->base(); base != nullptr) {
    tensors.insert(tensors.end(), base->tensors.begin(), base->tensors.end());
  }
  std::vector<TargetBox> boxes;
  for (const StoredTensor& stored : tensors) {
    GlobalTensor& tensor = trained.tensors[absl::StrCat(Name(stored.kind), " ", stored.name)];
    tensor = {stored.kind, std::vector<float>(size_t(stored.shape.elements()))};
    boxes.push_back({.name = stored.name,
                     .kind = stored.kind,
                     .dtype = DType::kF32,
                     .global_shape = stored.shape,
                     .box = WholeBox(stored.shape),
                     .data = tensor.values.data()});
  }
  const absl::Status loaded = found->checkpoint->Load(boxes);
  EXPECT_TRUE(loaded.ok()) << loaded;
}

Trained Train(Service& service, TestJob job) {
  job.steps = job.checkpoint_every = kSteps;
  job.directory = "runs/" + job.name;
  job.adamw = absl::StrCat("learning_rate: ", kLearningRate, ", epsilon: ", kEpsilon);
  const std::string id = service.Submit(job);
  EXPECT_EQ(service.WaitForEnd(id), "SUCCEEDED");
  Trained trained;
  for (const auto& step : service.Steps(id)) {
    trained.loss.push_back(step.at("loss").get<double>());
    trained.load_balancing_loss.push_back(step.value("load_balancing_loss", 0.0));
    trained.reward_margin.push_back(step.value("reward_margin", 0.0));
    ExpectPhasesFitIntoTheStep(step);
  }
  ReadCheckpoint(absl::StrCat(service.directory(), "/", job.directory), trained);
  return trained;
}

// How far sums in another order may take an element. A rounding is 6e-8; a gradient is a sum over a
// few hundred of them through two layers, and so within some 1e-6 of a tensor's largest. A
// parameter follows in each step by at most learning rate x error / epsilon: with gradients of
// 1e-3, by 1e-4 of the way that it could go. Measured are a tenth and a fifth of these limits; a
// sum that leaves out a rank is beyond them by three orders.
double Limit(const GlobalTensor& tensor) {
  if (tensor.kind == TensorKind::kParameter) return 1e-4 * kSteps * kLearningRate;
  double largest = 0;
  for (float value : tensor.values) largest = std::max(largest, std::abs(double(value)));
  return 1e-4 * largest;
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double(a[i]) - double(b[i]));
    if (!(difference <= largest)) largest = difference;  // Also where it is not a number.
  }
  return largest;
}

void ExpectSame(const Trained& got, const Trained& want) {
  ASSERT_EQ(want.loss.size(), size_t(kSteps));
  ASSERT_EQ(got.loss.size(), want.loss.size());
  for (size_t i = 0; i < want.loss.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("step ", i + 1));
    EXPECT_NEAR(got.loss[i], want.loss[i], 1e-6);  // Two units of its last place in f32.
    EXPECT_NEAR(got.load_balancing_loss[i], want.load_balancing_loss[i], 1e-6);
    // A sum of some ten logarithms of probabilities.
    EXPECT_NEAR(got.reward_margin[i], want.reward_margin[i], 1e-5);
  }
  ASSERT_GT(want.tensors.size(), 0u);
  EXPECT_EQ(got.tensors.size(), want.tensors.size());
  for (const auto& [name, tensor] : want.tensors) {
    SCOPED_TRACE(name);
    const auto found = got.tensors.find(name);
    ASSERT_NE(found, got.tensors.end());
    ASSERT_EQ(found->second.values.size(), tensor.values.size());
    EXPECT_LE(LargestDifference(found->second.values, tensor.values), Limit(tensor));
  }
}

struct Layout {
  std::string name;
  int devices = 0;
  int micro = 0;  // Of 4 sequences.
  std::string parallelism;
  std::string more = "";  // Further lines of the spec.
};

// Returns what the one rank trained.
Trained ExpectThatEachTrainsAsOneRank(Service& service, TestJob job,
                                      std::span<const Layout> layouts) {
  job.name = "one-" + std::string(layouts.front().name), job.micro = 4;
  const Trained one = Train(service, job);
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    job.name = layout.name, job.devices = layout.devices, job.micro = layout.micro;
    job.more = absl::StrCat("parallelism: {", layout.parallelism, "}\n", layout.more);
    const Trained trained = Train(service, job);
    ExpectSame(trained, one);
    if (absl::StrContains(layout.parallelism, "schedule:")) {
      EXPECT_THAT(layout.parallelism, HasSubstr("schedule: " + trained.schedule));
    }
  }
  return one;
}

TEST(Layouts, OfADenseModelTrainAsOneRank) {
  Service service({.workers = 2, .devices_per_worker = 8});
  const Layout layouts[] = {
      {"all-axes", 16, 1, "tensor: 2, pipeline: 2, virtual_pipeline: 2, context: 2"},
      {"gpipe-none", 4, 1, "pipeline: 2, schedule: GPIPE, zero: NONE"},
      {"all-gather-full", 4, 1, "context: 2, context_exchange: ALL_GATHER, zero: FULL"},
      // Key/value heads are half as many as tensor ranks.
      {"zero-bubble", 8, 1, "tensor: 4, pipeline: 2, schedule: ZERO_BUBBLE"},
      {"zero-bubble-full", 4, 1, "pipeline: 2, schedule: ZERO_BUBBLE, zero: FULL"}};
  ExpectThatEachTrainsAsOneRank(service, {}, layouts);
}

TEST(Layouts, OfTiedEmbeddingsAndBiasesTrainAsOneRank) {
  Service service({.workers = 2, .devices_per_worker = 4});
  const Layout layouts[] = {
      {"two-stages", 4, 1, "tensor: 2, pipeline: 2, schedule: ONE_F_ONE_B"},
      {"interleaved-full", 4, 1, "pipeline: 2, virtual_pipeline: 2, zero: FULL"},
      {"v-half", 4, 1, "pipeline: 2, schedule: V_HALF"},
      {"v-zb", 4, 1, "pipeline: 2, schedule: V_ZB"}};
  const TestJob job{.model =
                        "preset: gpt2-124m, overrides: {layers: 2, hidden: 32, ffn: 96, heads: 4, "
                        "kv_heads: 4, vocab: 256, max_seq: 64}"};
  ExpectThatEachTrainsAsOneRank(service, job, layouts);
}

// Tokens of a micro-batch, over all of its ranks, are the same everywhere: the load is balanced
// over them.
TEST(Layouts, OfExpertsTrainAsOneRank) {
  Service service({.workers = 2, .devices_per_worker = 4});
  const Layout layouts[] = {
      {"experts", 8, 1, "tensor: 2, expert: 2"},
      {"experts-full", 8, 1, "tensor: 2, expert: 2, zero: FULL",
       "recompute: {blocks: 1, norms_and_activations: true}"},
      {"over-context", 8, 2,
       "tensor: 2, context: 2, expert: 2, expert_split: EXPERT_TENSOR_CONTEXT"},
      {"same-on-tensor", 8, 2, "tensor: 2, pipeline: 2, expert: 2, expert_split: EXPERT"}};
  const TestJob job{.moe = "experts: 8, top_k: 2, expert_ffn: 24, aux_loss: 0.01"};
  const Trained one = ExpectThatEachTrainsAsOneRank(service, job, layouts);
  ASSERT_FALSE(one.load_balancing_loss.empty());
  EXPECT_GT(one.load_balancing_loss[0], 1);
  EXPECT_THAT(HttpGet(service.metrics_url()), HasSubstr("trainyard_load_balancing_loss{"));
}

// Bug it must catch: an adapter or its base has another place in a checkpoint that ranks divide.
TEST(Layouts, OfAnAdapterTrainAsOneRank) {
  Service service({.workers = 2, .devices_per_worker = 4});
  const std::string base =
      service.Submit({.name = "base", .steps = 1, .checkpoint_every = 1, .directory = "runs/base"});
  ASSERT_EQ(service.WaitForEnd(base), "SUCCEEDED");
  const std::string adapter =
      "init_from: runs/base\nadapter: {lora: {rank: 4, alpha: 8, dora: true, dropout: 0.1}}";
  const Layout layouts[] = {
      {"adapter-divided", 8, 1, "tensor: 2, pipeline: 2, context: 2", adapter},
      {"adapter-full", 4, 1, "pipeline: 2, zero: FULL", adapter}};
  const Trained one = ExpectThatEachTrainsAsOneRank(service, {.more = adapter}, layouts);
  EXPECT_TRUE(one.tensors.contains("m model.layers.0.self_attn.q_proj.lora_B.weight"));
  EXPECT_TRUE(one.tensors.contains("parameter model.layers.0.self_attn.q_proj.weight"));
  EXPECT_FALSE(one.tensors.contains("m model.layers.0.self_attn.q_proj.weight"));
}

TEST(Layouts, OfChatsAndPairsTrainAsOneRank) {
  Service service({.workers = 2, .devices_per_worker = 4});
  WriteTinyChats(service);
  const Layout of_chats[] = {{"chats-divided", 8, 1, "tensor: 2, pipeline: 2, context: 2"},
                             {"chats-full", 4, 1, "context: 2, zero: FULL"}};
  ExpectThatEachTrainsAsOneRank(service, {.data = kTinyChats}, of_chats);
  const std::string dpo = "preference: {method: DPO, beta: 0.5}";
  const Layout of_pairs[] = {{"pairs-divided", 8, 1, "tensor: 2, pipeline: 2, context: 2", dpo},
                             {"pairs-full", 4, 1, "context: 2, zero: FULL", dpo}};
  const Trained one =
      ExpectThatEachTrainsAsOneRank(service, {.data = kTinyPairs, .more = dpo}, of_pairs);
  ASSERT_FALSE(one.reward_margin.empty());
  EXPECT_GT(std::abs(one.reward_margin.back()), 1e-4);
}

}  // namespace
}  // namespace trainyard::testing
