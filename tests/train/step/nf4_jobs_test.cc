// Proves jobs whose base is in NF4, in bf16: the base has the parts of its numbers, whatever the
// layout; who reads the checkpoint gets the numbers that training used; a run goes on from its base
// as it is, also under another job; and random bytes stand for a base that nothing gives. The same
// for the experts of a mixture; an adapter that was trained beside experts as numbers is refused.
// In f64, each family with experts has the loss and the gradient that its base's numbers give.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "models/program/nf4.h"
#include "tests/models/hf/files.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/save.h"
#include "train/config/resolve_model.h"
#include "train/hf/export.h"
#include "train/step/memory_limit.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 512 and 256 blocks: two groups and one.
constexpr char kUp[] = "model.layers.1.mlp.up_proj.weight";
constexpr char kQuery[] = "model.layers.0.self_attn.q_proj.weight";
const std::map<std::string, Shape> kWeights = {{kUp, {256, 128}}, {kQuery, {128, 128}}};

class Nf4Jobs : public ::testing::Test {
 protected:
  JobConfig Job(const std::string& name) const {
    JobConfig job = TinyJob(absl::StrCat(scratch_, "/", name));
    auto& fields = job.model.architecture->fields;
    fields["hidden"] = 128;
    fields["ffn"] = 256;
    fields["head_dim"] = 32;
    job.batch.global = 4;
    if (!mixture_) return job;
    job.model.architecture->family = "qwen3_moe";
    fields.erase("ffn");
    for (const auto& [name, value] : {std::pair("experts", 4), {"top_k", 2}, {"expert_ffn", 192}}) {
      fields[absl::StrCat("moe.", name)] = value;
    }
    return job;
  }
  // A model of which a step has made every weight another one.
  std::string Base() const {
    JobConfig job = Job("base");
    job.precision = PrecisionName::kF32;
    job.steps = 1;
    const RankRun run = RunJob(job)[0];
    CHECK(run.status.ok()) << run.status;
    return job.checkpoint->directory;
  }
  JobConfig Adapted(const std::string& name, const std::string& base) const {
    JobConfig job = Job(name);
    job.precision = PrecisionName::kBF16;
    job.init_from = base;
    job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 2, .base = LoraBase::kNf4}};
    return job;
  }

  const std::string scratch_ = EmptyDirectory("nf4");
  bool mixture_ = false;
};

template <typename T>
std::vector<T> Load(const Checkpoint& checkpoint, const std::string& name, const Shape& shape,
                    const Box& box) {
  std::vector<T> values(size_t(box.elements()));
  const TargetBox target = {.name = name,
                            .dtype = DTypeOf<T>::value,
                            .global_shape = shape,
                            .box = box,
                            .data = values.data(),
                            .conversion = Conversion::kWiden};
  const absl::Status loaded = checkpoint.Load({&target, 1});
  CHECK(loaded.ok()) << loaded;
  return values;
}
template <typename T>
std::vector<T> Load(const Checkpoint& checkpoint, const std::string& name, const Shape& shape) {
  return Load<T>(checkpoint, name, shape, WholeBox(shape));
}

Nf4Tensor PartsOf(const Checkpoint& checkpoint, const std::string& name, const Shape& shape) {
  const Nf4Parts parts = PartsInNf4({.name = name, .shape = shape});
  return {Load<uint8_t>(checkpoint, parts.codes.name, parts.codes.shape),
          Load<uint8_t>(checkpoint, parts.scales.name, parts.scales.shape),
          Load<float>(checkpoint, parts.groups.name, parts.groups.shape)};
}

void ExpectSame(const Nf4Tensor& a, const Nf4Tensor& b) {
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.scales, b.scales);
  EXPECT_EQ(a.groups, b.groups);
}

TEST_F(Nf4Jobs, TheBaseIsThatOfItsNumbersInEveryLayout) {
  const std::string base = Base();
  const JobConfig one = Adapted("one", base);
  ASSERT_TRUE(RunJob(one)[0].status.ok());
  JobConfig four = Adapted("four", base);
  four.parallelism.tensor = 2;
  four.parallelism.zero = Zero::kFull;
  for (const RankRun& run : RunJob(four, {.ranks = 4})) ASSERT_TRUE(run.status.ok()) << run.status;
  const Checkpoint of_one = Newest(one.checkpoint->directory);
  const Checkpoint of_four = Newest(four.checkpoint->directory);
  EXPECT_EQ(of_one.state().adapter->nf4, DType::kBF16);
  for (const auto& [name, shape] : kWeights) {
    const auto numbers = Load<float>(Newest(base), name, shape);
    const absl::StatusOr<Nf4Tensor> want = QuantizeNf4(numbers);
    ASSERT_TRUE(want.ok()) << want.status();
    ExpectSame(PartsOf(of_one, name, shape), *want);
    ExpectSame(PartsOf(of_four, name, shape), *want);
  }
  const auto digest = [](const Checkpoint& checkpoint) {
    return checkpoint.base()->Find("model.norm.weight", TensorKind::kParameter)->boxes[0].sha256;
  };
  EXPECT_EQ(digest(of_one), digest(of_four));
}

// Rows from the second group on, and columns within a block.
TEST_F(Nf4Jobs, ReadersGetTheNumbersThatTrainingUsed) {
  const JobConfig job = Adapted("read", Base());
  ASSERT_TRUE(RunJob(job)[0].status.ok());
  const Checkpoint checkpoint = Newest(job.checkpoint->directory);
  for (const auto& [name, shape] : kWeights) {
    const Nf4Tensor parts = PartsOf(checkpoint, name, shape);
    std::vector<float> numbers(size_t(shape.elements()));
    DequantizeNf4({parts.codes, parts.scales, parts.groups, 0}, numbers);
    EXPECT_EQ(checkpoint.Find(name, TensorKind::kParameter)->dtype, DType::kBF16);
    const Box box = {{shape[0] - 20, 40}, {17, 77}};
    const std::vector<float> read = Load<float>(checkpoint, name, shape, box);
    for (int64_t i = 0; i < box.elements(); ++i) {
      const int64_t row = box.offset[0] + i / 77, column = box.offset[1] + i % 77;
      ASSERT_EQ(read[size_t(i)], float(bf16(numbers[size_t(row * 128 + column)]))) << i;
    }
  }
  const auto merged = ExportHf(checkpoint, {.to = scratch_ + "/merged", .merge = true});
  EXPECT_TRUE(merged.ok()) << merged.status();
}

class Nf4ExpertsJobs : public Nf4Jobs {
 protected:
  Nf4ExpertsJobs() { mixture_ = true; }
  JobConfig AdaptedExperts(const std::string& name, const std::string& base) const {
    JobConfig job = Adapted(name, base);
    job.adapter->lora->targets = {"all-linear", "*.experts.*"};
    return job;
  }
};

// Matrices of 384 blocks, which are two groups.
const std::map<std::string, Shape> kExpertWeights = {
    {"model.layers.0.mlp.experts.3.gate_proj.weight", {192, 128}},
    {"model.layers.1.mlp.experts.2.up_proj.weight", {192, 128}},
    {"model.layers.1.mlp.experts.1.down_proj.weight", {128, 192}}};

TEST_F(Nf4ExpertsJobs, TheBaseIsThatOfItsNumbersInEveryLayout) {
  const std::string base = Base();
  const JobConfig one = AdaptedExperts("one", base);
  ASSERT_TRUE(RunJob(one)[0].status.ok());
  JobConfig divided = AdaptedExperts("divided", base);
  divided.parallelism.tensor = divided.parallelism.expert = 2;
  divided.parallelism.zero = Zero::kFull;
  JobConfig stages = AdaptedExperts("stages", base);
  stages.parallelism.pipeline = stages.parallelism.expert = 2;
  for (const JobConfig& job : {divided, stages}) {
    for (const RankRun& run : RunJob(job, {.ranks = 4})) ASSERT_TRUE(run.status.ok()) << run.status;
  }
  for (const auto& [name, shape] : kExpertWeights) {
    SCOPED_TRACE(name);
    const absl::StatusOr<Nf4Tensor> want = QuantizeNf4(Load<float>(Newest(base), name, shape));
    ASSERT_TRUE(want.ok()) << want.status();
    for (const JobConfig& job : {one, divided, stages}) {
      const Checkpoint checkpoint = Newest(job.checkpoint->directory);
      ExpectSame(PartsOf(checkpoint, name, shape), *want);
      EXPECT_EQ(checkpoint.base()->Find(name, TensorKind::kParameter), nullptr);
      std::vector<float> numbers(size_t(shape.elements()));
      DequantizeNf4({want->codes, want->scales, want->groups, 0}, numbers);
      for (float& x : numbers) x = float(bf16(x));
      EXPECT_EQ(Load<float>(checkpoint, name, shape), numbers);
    }
  }
  const auto merged =
      ExportHf(Newest(one.checkpoint->directory), {.to = scratch_ + "/merged", .merge = true});
  EXPECT_TRUE(merged.ok()) << merged.status();
}

// Layers and experts.
TEST_F(Nf4ExpertsJobs, ARunGoesOnFromItsBaseAsItIs) {
  const std::string base = Base();
  JobConfig whole = AdaptedExperts("whole", base);
  whole.steps = 4;
  ASSERT_TRUE(RunJob(whole)[0].status.ok());
  JobConfig stopped = AdaptedExperts("stopped", base);
  stopped.steps = 4;
  RunOptions options;
  options.stop = [](int, int64_t finished) { return finished >= 2; };
  ASSERT_TRUE(RunJob(stopped, options)[0].status.ok());
  std::filesystem::remove_all(base);
  const RankRun rest = RunJob(stopped, {.epoch = 2, .resume = true})[0];
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_EQ(NewestDigest(stopped.checkpoint->directory), NewestDigest(whole.checkpoint->directory));

  JobConfig next = AdaptedExperts("next", whole.checkpoint->directory);
  next.parallelism.tensor = next.parallelism.expert = 2;
  for (const RankRun& run : RunJob(next, {.ranks = 4})) ASSERT_TRUE(run.status.ok()) << run.status;
  std::map<std::string, Shape> weights = kExpertWeights;
  weights[kQuery] = kWeights.at(kQuery);
  for (const auto& [name, shape] : weights) {
    ExpectSame(PartsOf(Newest(next.checkpoint->directory), name, shape),
               PartsOf(Newest(whole.checkpoint->directory), name, shape));
  }
}

// As the first programs with NF4 wrote it.
TEST_F(Nf4ExpertsJobs, AnAdapterBesideExpertsAsNumbersIsRefused) {
  const JobConfig job = Adapted("now", Base());
  ASSERT_TRUE(RunJob(job)[0].status.ok());
  RunState state = Newest(job.checkpoint->directory).state(), of_base = state;
  of_base.base.reset();
  of_base.adapter.reset();
  const std::string earlier = scratch_ + "/earlier";
  std::filesystem::create_directories(earlier);
  const auto& [name, shape] = *kExpertWeights.begin();
  const std::vector<bf16> numbers(size_t(shape.elements()));
  const SourceBox weight{name,  TensorKind::kParameter, DType::kBF16,
                         shape, WholeBox(shape),        numbers.data()};
  const auto write = [](const std::string& to, const SourceBox& box) {
    auto written = WriteRank(to, 0, {&box, 1}, LocalStorage());
    CHECK(written.ok()) << written.status();
    return *std::move(written);
  };
  ASSERT_TRUE(BeginBase(earlier, state.epoch, LocalStorage()).ok());
  const auto reference =
      CommitBase(earlier, of_base, write(BasePath(earlier, state.epoch), weight), LocalStorage());
  ASSERT_TRUE(reference.ok()) << reference.status();
  state.base = *reference;
  const std::vector<float> values(2 * 128);
  const SourceBox down{"model.layers.0.self_attn.q_proj.lora_A.weight",
                       TensorKind::kParameter,
                       DType::kF32,
                       {2, 128},
                       WholeBox({2, 128}),
                       values.data()};
  ASSERT_TRUE(BeginCheckpoint(earlier, state.epoch, state.step, LocalStorage()).ok());
  const std::string path = CheckpointPath(earlier, state.epoch, state.step);
  ASSERT_TRUE(CommitCheckpoint(earlier, state, write(path, down), LocalStorage()).ok());
  const std::string message(RunJob(Adapted("next", earlier))[0].status.message());
  EXPECT_THAT(message, HasSubstr(absl::StrCat("wanted an adapter that was trained beside ", name,
                                              " in NF4, found that its base has this weight as it "
                                              "is computed; `trainyard export --merge`")));
}

struct MixtureCase {
  const char* family;
  GivenFields fields;  // Besides those of all; "ffn" and "layers" are for those that have them.
  std::vector<std::string> lacks;
  friend void PrintTo(const MixtureCase& c, std::ostream* out) { *out << c.family; }
};

const MixtureCase kMixtures[] = {{"mixtral", {}, {"ffn"}},
                                 {"qwen3_moe", {}, {"ffn"}},
                                 {"gpt_oss", {}, {"ffn"}},
                                 {"deepseek_v3",
                                  {{"dense_layers", 1},
                                   {"q_lora_rank", 64},
                                   {"kv_lora_rank", 64},
                                   {"qk_nope_head_dim", 32},
                                   {"qk_rope_head_dim", 32},
                                   {"v_head_dim", 32}},
                                  {"kv_heads", "head_dim"}},
                                 {"nemotron_h",
                                  {{"hybrid_pattern", std::string("ME*-")},
                                   {"mamba_heads", 4},
                                   {"mamba_head_dim", 32},
                                   {"mamba_groups", 2},
                                   {"mamba_state", 16},
                                   {"moe_latent", 64},
                                   {"moe.shared_experts", 1},
                                   {"moe.shared_ffn", 64}},
                                  {"layers"}}};

class Nf4Mixtures : public Nf4ExpertsJobs, public ::testing::WithParamInterface<MixtureCase> {
 protected:
  // A step of rate 0.
  JobConfig OfFamily(const std::string& name) const {
    JobConfig job = Nf4Jobs::Job(name);
    job.model.architecture->family = GetParam().family;
    auto& fields = job.model.architecture->fields;
    fields["ffn"] = 256;
    for (const auto& [field, value] : GetParam().fields) fields[field] = value;
    for (const std::string& field : GetParam().lacks) fields.erase(field);
    job.optimizer.options["learning_rate"] = 0;
    job.steps = 1;
    return job;
  }
};

// The merged model has the numbers, because the adapters still add nothing.
TEST_P(Nf4Mixtures, TheFirstStepIsThatBesideTheNumbers) {
  const JobConfig base = OfFamily("base");
  ASSERT_TRUE(RunJob(base)[0].status.ok());
  JobConfig in_nf4 = OfFamily("in_nf4");
  in_nf4.init_from = base.checkpoint->directory;
  in_nf4.adapter = AdapterConfig{
      .lora =
          LoraConfig{.rank = 2, .targets = {"all-linear", "*.experts.*"}, .base = LoraBase::kNf4}};
  const RankRun got = RunJob(in_nf4)[0];
  ASSERT_TRUE(got.status.ok()) << got.status;
  const std::string merged = scratch_ + "/merged";
  const auto exported = ExportHf(Newest(in_nf4.checkpoint->directory),
                                 {.to = merged, .dtype = HfDType::kF64, .merge = true});
  ASSERT_TRUE(exported.ok()) << exported.status();

  JobConfig beside = in_nf4;
  beside.init_from = "";
  beside.model.import_path = merged;
  beside.checkpoint->directory = scratch_ + "/beside";
  beside.adapter->lora->base = LoraBase::kAsComputed;
  const RankRun want = RunJob(beside)[0];
  ASSERT_TRUE(want.status.ok()) << want.status;
  EXPECT_NEAR(got.records[0].loss, want.records[0].loss, 1e-12);
  EXPECT_NEAR(got.records[0].grad_norm / want.records[0].grad_norm, 1, 1e-10);

  // The base itself has others.
  beside.model.import_path = "";
  beside.init_from = base.checkpoint->directory;
  beside.checkpoint->directory = scratch_ + "/whole";
  const RankRun whole = RunJob(beside)[0];
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_GT(std::abs(whole.records[0].loss - want.records[0].loss), 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Families, Nf4Mixtures, ::testing::ValuesIn(kMixtures),
                         [](const auto& info) { return std::string(info.param.family); });

TEST_F(Nf4Jobs, IsAdvisedWhereTheBaseDoesNotFit) {
  const auto advice = [](const JobConfig& job) {
    const auto model = ResolveModel(job.model);
    CHECK(model.ok()) << model.status();
    MemoryPlan plan;
    plan.flat_bytes[size_t(FlatBuffer::kFrozen)] = size_t{1} << 40;
    return std::string(
        CheckMemory(plan, {.kind = DeviceKind::kCuda, .bytes = size_t{8} << 30}, job, *model)
            .message());
  };
  JobConfig job = Adapted("large", "base");
  EXPECT_THAT(advice(job), Not(HasSubstr("adapter.lora.base")));
  job.adapter->lora->base = LoraBase::kAsComputed;
  EXPECT_THAT(advice(job), HasSubstr("adapter.lora.base NF4"));
  job.model.architecture->fields["hidden"] = 96;
  EXPECT_THAT(advice(job), Not(HasSubstr("adapter.lora.base")));
}

TEST_F(Nf4Jobs, RandomBytesAreABaseToMeasureWith) {
  const JobConfig job = Adapted("random", "");
  const RankRun run = RunJob(job)[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_TRUE(std::isfinite(run.records.back().loss));
  const Checkpoint checkpoint = Newest(job.checkpoint->directory);
  const auto numbers = Load<float>(checkpoint, kUp, kWeights.at(kUp));
  double squares = 0;
  for (const float x : numbers) squares += double(x) * x;
  // As initial weights, which have 0.02.
  EXPECT_NEAR(std::sqrt(squares / double(numbers.size())), 0.02, 0.006);
}

}  // namespace
}  // namespace trainyard::testing
