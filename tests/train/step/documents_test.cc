// Proves training on sequences that hold several documents (reset_attention_mask). A packed sample
// has the losses of its documents alone; layouts equal one rank, with batches made here and with
// jobs that read them from files; and the FLOPs of a step count the pairs within documents, once.
// And on targets behind the ends of documents that are not counted (eod_mask_loss): every gang has
// the loss of one rank, and what counts all targets sends nothing for that.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "models/arch/flops.h"
#include "tests/models/tiny.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "train/config/resolve_model.h"
#include "train/data/blend.h"
#include "train/data/indexed.h"
#include "train/step/step_runner.h"
#include "train/tools/indexed_writer.h"

namespace trainyard::testing {
namespace {

constexpr double kTolerance = 1e-10;

// --- A packed sample and its documents.

struct Document {
  std::vector<int32_t> tokens, targets;
};

// The sum of the losses of the documents, in one sequence. `packed`: tokens attend only within
// their document.
double LossOf(const ModelConfig& config, const std::vector<Document>& documents, bool packed) {
  std::vector<int32_t> tokens, targets, begins;
  for (const Document& document : documents) {
    begins.insert(begins.end(), document.tokens.size(), int32_t(tokens.size()));
    tokens.insert(tokens.end(), document.tokens.begin(), document.tokens.end());
    targets.insert(targets.end(), document.targets.begin(), document.targets.end());
  }
  const auto executable =
      Bind(RecordTraining(*CreateModel(config), {.record = {.precision = Precision::F64(),
                                                            .sequence = int64_t(tokens.size()),
                                                            .documents = packed,
                                                            .restart_positions = packed}}));
  // New weights are so small that it would hardly matter what tokens attend to.
  for (const ParameterBox& box : executable->program().Parameters()) {
    double* weights = executable->flat(FlatBuffer::kMaster, box.flat).as<double>();
    for (int64_t i = 0; i < box.flat.elements; ++i) {
      weights[i] = 0.5 * Normal(11, HashName(box.name.c_str()), uint64_t(i));
    }
  }
  executable->Run(Action::kPrepare);
  executable->WriteInput("tokens", 0, tokens);
  executable->WriteInput("targets", 0, targets);
  if (packed) executable->WriteInput(kDocumentBegins, 0, begins);
  executable->WriteStepState({.step = 1, .loss_scale = 1, .seed = 1});
  executable->Run(Action::kForward, {.validation = true});
  return executable->ReadStepState().loss;
}

TEST(PackedDocuments, HaveTheLossesThatTheyHaveAlone) {
  for (const ModelConfig& config : {TinyLlama(), TinyMoe(), TinyOf("gpt_oss"), TinyOf("gemma3"),
                                    TinyOf("nemotron_h"), TinyGpt3()}) {
    SCOPED_TRACE(config.family());
    const int64_t vocab = AsDecoder(config).vocab;
    std::vector<Document> documents;
    double alone = 0;
    for (const int64_t length : {5, 1, 7, 3}) {
      const auto seed = uint64_t(documents.size());
      documents.push_back({Tokens(length, vocab, seed), Tokens(length, vocab, seed + 10)});
      alone += LossOf(config, {documents.back()}, /*packed=*/false);
    }
    EXPECT_NEAR(LossOf(config, documents, /*packed=*/true), alone, 1e-12 * alone);
    EXPECT_GT(std::abs(LossOf(config, documents, /*packed=*/false) - alone), 1e-3 * alone);
  }
}

// --- Layouts.

LayoutCase WithDocuments(const std::string& model, const ParallelismConfig& parallelism,
                         int64_t data = 1) {
  LayoutCase c = MakeLayoutCase(model, parallelism, data);
  c.job.batch.sequence = 24;
  AsDecoder(c.model).max_seq = 24;
  c.job.data = IndexedData{.prefix = "corpus", .reset_attention_mask = true};
  return c;
}

std::vector<LayoutCase> Cases() {
  constexpr auto kGather = ContextExchange::kAllGather;
  std::vector<LayoutCase> cases;
  for (const char* model : {"llama", "gpt3", "gpt_oss", "nemotron_h"}) {
    cases.push_back(WithDocuments(model, {.tensor = 2}));
    cases.push_back(WithDocuments(model, {.context = 2}, 2));
    cases.push_back(WithDocuments(model, {.context = 3}));
    cases.push_back(WithDocuments(model, {.context = 4, .context_exchange = kGather}));
    cases.push_back(WithDocuments(model, {.tensor = 2, .context = 2}));
    cases.push_back(WithDocuments(model, {.pipeline = 2, .context = 2}));
    cases.push_back(WithDocuments(model, {.pipeline = 2, .virtual_pipeline = 2}));
    cases.push_back(WithDocuments(model, {.pipeline = 2}, 2));
    cases.back().job.recompute = {.blocks = 2, .norms_and_activations = true};
  }
  return cases;
}

class DocumentLayouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(DocumentLayouts, StepsEqualThoseOfOneRank) {
  const LayoutCase layout = HeldUp(GetParam());
  const TrainedSteps one = TrainOnOneRank(layout);
  EXPECT_LT(LargestDifference(Train(layout), one), kTolerance);
  LayoutCase whole = layout;
  whole.job.data = {};
  EXPECT_GT(LargestDifference(TrainOnOneRank(whole), one), 1e-4) << "documents make no difference";
}
INSTANTIATE_TEST_SUITE_P(Some, DocumentLayouts, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name(); });

// Recurrent layers: a rank tells others where documents begin by what it lets through.
std::vector<LayoutCase> RecurrentCases() {
  std::vector<LayoutCase> cases = AllLayouts("nemotron_h", 4);
  for (LayoutCase& c : cases) {
    AsDecoder(c.model).tied = false;  // Tied embeddings amplify rounding (layouts_test.cc).
    c.job.data = IndexedData{.prefix = "corpus", .reset_attention_mask = true};
  }
  return cases;
}

class RecurrentLayouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(RecurrentLayouts, StepsEqualThoseOfOneRank) {
  const LayoutCase layout = HeldUp(GetParam());
  EXPECT_LT(LargestDifference(Train(layout), TrainOnOneRank(layout)), kTolerance);
}
INSTANTIATE_TEST_SUITE_P(All, RecurrentLayouts, ::testing::ValuesIn(RecurrentCases()),
                         [](const auto& info) { return info.param.name(); });

// --- Jobs.

constexpr int64_t kSamples = 8, kSequence = 12;
// Of all tokens of the samples, and one for the last target: documents longer than a sample, of one
// token, without any, and one that begins where a sample begins.
constexpr int64_t kLengths[] = {5, 1, 30, 0, 12, 1, 1, 10, 7, 15, 14, 1};

// A job that reads all of its data in each step.
JobConfig JobOf(const std::string& name) {
  const std::string directory = FreshDirectory(name);
  CHECK(MakeDirectories(directory).ok());
  const auto writer = IndexedWriter::Create(directory + "/corpus", IndexDType::kInt32);
  CHECK(writer.ok()) << writer.status();
  int64_t tokens = 0;
  for (const int64_t length : kLengths) {
    CHECK((*writer)->AddDocument(Tokens(length, 32, uint64_t(tokens))).ok());
    tokens += length;
  }
  CHECK(tokens == kSamples * kSequence + 1) << tokens;
  CHECK((*writer)->Finish().ok());
  JobConfig job = TinyJob("");
  job.checkpoint.reset();
  job.data = IndexedData{.prefix = directory + "/corpus", .reset_attention_mask = true};
  return job;
}

// The pairs of tokens of one sample and document, of which the second is not after the first, at
// most `window` apart. Counted one by one.
double PairsWithinDocuments(int64_t window) {
  double pairs = 0;
  int64_t first = 0;
  for (const int64_t length : kLengths) {
    for (int64_t query = first; query < std::min(first + length, kSamples * kSequence); ++query) {
      const int64_t begin = std::max(first, query / kSequence * kSequence);
      pairs += double(std::min(query - begin + 1, window));
    }
    first += length;
  }
  return pairs;
}

struct Gang {
  const char* name;
  int ranks;
  ParallelismConfig parallelism;
};
constexpr ContextExchange kAllGather = ContextExchange::kAllGather;
const Gang kGangs[] = {{"data", 2, {}},
                       {"tensor", 2, {.tensor = 2}},
                       {"replicas", 4, {.tensor = 4}},
                       {"pipeline", 2, {.pipeline = 2}},
                       {"ring", 2, {.context = 2}},
                       {"gather", 3, {.context = 3, .context_exchange = kAllGather}},
                       {"both", 4, {.tensor = 2, .context = 2}},
                       {"stages", 4, {.pipeline = 2, .context = 2}}};

TEST(DocumentJobs, AreTheSameForEveryGangAndCountFlopsWithinDocuments) {
  const JobConfig job = JobOf("document_jobs");
  const RankRun alone = RunJob(job)[0];
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  ASSERT_EQ(alone.records.size(), 2u);
  // Layers, heads, and six products of a multiplication and an addition for each of four dims.
  const double per_pair = 2 * 4 * 6 * 2 * 4;
  const Flops flops = FlopsPerToken(*ResolveModel(job.model), kSequence);
  const double rest = (flops.total() - flops.attention) * kSamples * kSequence;
  const double pairs = PairsWithinDocuments(kSequence);
  EXPECT_LT(per_pair * pairs, 0.9 * flops.attention * kSamples * kSequence);
  const double want = rest + per_pair * pairs;
  EXPECT_NEAR(alone.records[0].model_flops, want, 1e-9 * want);
  for (const Gang& gang : kGangs) {
    SCOPED_TRACE(gang.name);
    JobConfig divided = job;
    divided.parallelism = gang.parallelism;
    for (const RankRun& run : RunJob(divided, {.ranks = gang.ranks})) {
      ASSERT_TRUE(run.status.ok()) << run.status;
      for (size_t step = 0; step < 2; ++step) {
        const StepRecord &got = run.records[step], &one = alone.records[step];
        EXPECT_NEAR(got.loss, one.loss, kTolerance * one.loss);
        EXPECT_NEAR(got.grad_norm, one.grad_norm, kTolerance * one.grad_norm);
        EXPECT_NEAR(got.model_flops, want, 1e-9 * want);
      }
    }
  }
  JobConfig whole = job;
  whole.data.As<IndexedData>().reset_attention_mask = false;
  const RankRun mixed = RunJob(whole)[0];
  ASSERT_TRUE(mixed.status.ok()) << mixed.status;
  EXPECT_GT(std::abs(mixed.records[0].loss - alone.records[0].loss), 1e-8);
  const double all = flops.total() * kSamples * kSequence;
  EXPECT_NEAR(mixed.records[0].model_flops, all, 1e-9 * all);
}

uint64_t Calls(const StepRecord& record) {
  uint64_t calls = 0;
  for (const CollectiveUse& use : record.collectives) calls += use.calls;
  return calls;
}

// Uneven over ranks and micro-batches. With validation, the batch has some samples twice.
TEST(MaskedJobs, AreTheSameForEveryGangAndMicroBatch) {
  JobConfig job = JobOf("masked_jobs");
  job.data.As<IndexedData>() = {.prefix = job.data.As<IndexedData>().prefix,
                                .validation_fraction = 0.3,
                                .eod_mask_loss = true};
  job.validation = ValidationConfig{.every_steps = 1, .batches = 2};
  JobConfig counted = job;
  counted.data.As<IndexedData>().eod_mask_loss = false;
  const RankRun alone = RunJob(job)[0], all = RunJob(counted)[0];
  ASSERT_TRUE(alone.status.ok() && all.status.ok()) << alone.status << all.status;
  EXPECT_GT(std::abs(all.records[0].loss - alone.records[0].loss), 1e-5);
  EXPECT_GT(std::abs(*all.records[0].validation_loss - *alone.records[0].validation_loss), 1e-5);
  EXPECT_EQ(all.records[0].tokens, alone.records[0].tokens);
  EXPECT_EQ(Calls(alone.records[0]), Calls(all.records[0]) + 1);
  const auto expect_same = [&](const JobConfig& divided, int ranks) {
    for (const RankRun& run : RunJob(divided, {.ranks = ranks})) {
      ASSERT_TRUE(run.status.ok()) << run.status;
      for (size_t step = 0; step < 2; ++step) {
        const StepRecord &got = run.records[step], &one = alone.records[step];
        EXPECT_NEAR(got.loss, one.loss, kTolerance * one.loss);
        EXPECT_NEAR(got.grad_norm, one.grad_norm, kTolerance * one.grad_norm);
        EXPECT_NEAR(*got.validation_loss, *one.validation_loss, kTolerance * one.loss);
      }
    }
  };
  for (const int64_t micro : {2, 8}) {
    SCOPED_TRACE(micro);
    JobConfig larger = job;
    larger.batch.micro = micro;
    expect_same(larger, 1);
  }
  for (const Gang& gang : kGangs) {
    SCOPED_TRACE(gang.name);
    JobConfig divided = job;
    divided.parallelism = gang.parallelism;
    expect_same(divided, gang.ranks);
  }
}

TEST(MaskedJobs, BalanceExpertsOverAllTokens) {
  const StepState state = InitialState({.tokens = 40, .counts = {.uncounted = 30}});
  EXPECT_DOUBLE_EQ(state.loss_scale, 1. / 10);
  EXPECT_DOUBLE_EQ(state.loss_scale * state.counted_share, 1. / 40);
}

// Trains on documents of these lengths, and expects that the job ends in this step.
void ExpectNoneIsCounted(const std::string& name, const std::vector<int64_t>& lengths,
                         double held_out, size_t step) {
  JobConfig job = JobOf(name);
  const std::string prefix = job.data.As<IndexedData>().prefix + "_of_tokens";
  const auto writer = IndexedWriter::Create(prefix, IndexDType::kInt32);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const int64_t length : lengths) {
    ASSERT_TRUE((*writer)->AddDocument(Tokens(length, 32, 1)).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  job.data = IndexedData{.prefix = prefix, .validation_fraction = held_out, .eod_mask_loss = true};
  if (held_out > 0) job.validation = ValidationConfig{.every_steps = 2, .batches = 1};
  for (const RankRun& run : RunJob(job, {.ranks = 2})) {
    EXPECT_EQ(run.status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(run.status.message()),
                ::testing::HasSubstr("data.indexed.prefix: wanted a target that is counted"));
    EXPECT_EQ(run.records.size() + 1, step);
  }
}

TEST(MaskedJobs, EndWhereNoTargetIsCounted) {
  std::vector<int64_t> lengths(kSamples * kSequence + 1, 1);
  ExpectNoneIsCounted("masked_all", lengths, 0, 1);
  // All documents of one token are held out.
  lengths.insert(lengths.begin(), lengths.size() + 2, kSequence);
  ExpectNoneIsCounted("masked_validation", lengths, 0.49, 2);
}

// The corpus above and one of its own documents in another order, packed. The state of a job is the
// number of samples alone, whatever reads them.
TEST(BlendJobs, ResumeToTheBitAndAreTheSameForEveryGang) {
  JobConfig job = JobOf("blend_jobs");
  const std::string prefix = job.data.As<IndexedData>().prefix;
  const auto writer = IndexedWriter::Create(prefix + "2", IndexDType::kInt32);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const int64_t length : {40, 3, 9, 1, 6}) {
    ASSERT_TRUE((*writer)->AddDocument(Tokens(length, 32, uint64_t(length + 7))).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  job.data =
      BlendData{.datasets = {{2, prefix, ""}, {1, prefix + "2", ""}}, .reset_attention_mask = true};
  job.steps = 4;  // Some epochs of both.
  job.checkpoint = CheckpointConfig{.directory = FreshDirectory("blend_whole"), .keep = 3};
  const RankRun alone = RunJob(job)[0];
  ASSERT_TRUE(alone.status.ok()) << alone.status;

  JobConfig parts = job;
  parts.checkpoint->directory = FreshDirectory("blend_parts");
  RunJob(parts, {.stop = [](int, int64_t step) { return step == 1; }});
  const RankRun rest = RunJob(parts, {.epoch = 2, .resume = true})[0];
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_EQ(rest.records.front().step, 2);
  EXPECT_EQ(NewestDigest(parts.checkpoint->directory), NewestDigest(job.checkpoint->directory));

  for (const Gang& gang : kGangs) {
    SCOPED_TRACE(gang.name);
    JobConfig divided = job;
    divided.checkpoint.reset();
    divided.parallelism = gang.parallelism;
    for (const RankRun& run : RunJob(divided, {.ranks = gang.ranks})) {
      ASSERT_TRUE(run.status.ok()) << run.status;
      for (size_t step = 0; step < 4; ++step) {
        const double want = alone.records[step].loss;
        EXPECT_NEAR(run.records[step].loss, want, kTolerance * want);
      }
    }
  }
}

// A window limits the pairs of half of the layers, and frozen projections need no gradients.
TEST(DocumentJobs, CountTheFlopsOfWindowsAndOfFrozenLayers) {
  JobConfig job = JobOf("document_windows");
  job.model.architecture = {"gpt_oss",
                            {{"layers", 2},
                             {"hidden", 16},
                             {"heads", 4},
                             {"kv_heads", 2},
                             {"head_dim", 4},
                             {"vocab", 32},
                             {"max_seq", 16},
                             {"moe.experts", 4},
                             {"moe.top_k", 2},
                             {"moe.expert_ffn", 8},
                             {"window", 3}}};
  const double both = PairsWithinDocuments(3) + PairsWithinDocuments(kSequence);
  const Flops flops = FlopsPerToken(*ResolveModel(job.model), kSequence);
  const double rest = (flops.total() - flops.attention) * kSamples * kSequence;
  const double per_pair = 4 * 2 * 4;  // Of one layer's heads and one product.
  const double want = rest + 6 * per_pair * both;
  for (const int ranks : {1, 2, 3}) {
    job.parallelism.context = ranks;
    const RankRun run = RunJob(job, {.ranks = ranks})[0];
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_NEAR(run.records[0].model_flops, want, 1e-9 * want) << ranks;
  }
  job.parallelism.context = 1;

  const auto saved = [](JobConfig job) {
    const RankRun packed = RunJob(job)[0];
    job.data.As<IndexedData>().reset_attention_mask = false;
    return RunJob(job)[0].records.at(0).model_flops - packed.records.at(0).model_flops;
  };
  const double pairs =
      kSamples * kSequence * (kSequence + 1) / 2.0 + kSamples * (3 + 3 * (kSequence - 2.0)) - both;
  EXPECT_NEAR(saved(job), 6 * per_pair * pairs, 1e-6 * want);
  job.trainable = {"lm_head.weight"};  // Attention then has no backward pass.
  EXPECT_NEAR(saved(job), 2 * per_pair * pairs, 1e-6 * want);
}

}  // namespace
}  // namespace trainyard::testing
