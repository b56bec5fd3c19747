// Proves attention's layer with every mask, with sinks, a soft cap, values of another width and
// documents, in a small model in f64: gradients against central differences, and context and tensor
// ranks against one rank. Which parts a context rank computes: that no pair is left out or met
// twice, that parts nobody sees are left out, and that FLOPs count the pairs.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "models/language_model.h"
#include "models/layers/attention.h"
#include "models/layers/embedding.h"
#include "models/program/ops/context_parts.h"
#include "tests/models/tiny.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/ranks.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kSequences = 2, kSequence = 24, kVocab = 7, kWidth = 6;
constexpr int64_t kHeads = 4, kKeyHeads = 2, kHeadDim = 4;
constexpr AttentionMask kFull = {.causal = false};

struct Form {
  std::string name;
  AttentionMask mask = {};
  bool documents = false;
  bool rest = false;  // Sinks, a soft cap, another scale, values of another width.
  bool ends = true;   // Of documents, where the mask is full.
  int64_t value_dim() const { return rest ? 3 : kHeadDim; }
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

Init Random() { return Init::Normal(0.7); }

// Embedding, one attention, output projection.
class AttentionModel final : public LanguageModel {
 public:
  explicit AttentionModel(const Form& form)
      : LanguageModel(kVocab + 1),
        form_(form),
        attention_(
            {.heads = kHeads,
             .kv_heads = kKeyHeads,
             .head_dim = kHeadDim,
             .rope = ops::RopeTable{.base = 100},
             .mask = form.mask,
             .sinks = form.rest ? std::optional(ParameterSpec{
                                      .name = "sinks", .shape = {kHeads}, .init = Random()})
                                : std::nullopt,
             .soft_cap = form.rest ? 1.5 : 0,
             .scale = form.rest ? std::optional(0.8) : std::nullopt,
             .value_head_dim = form.value_dim()},
            ColumnLinear({{"q", kHeads * kHeadDim},
                          {.name = "k", .width = kKeyHeads * kHeadDim, .key_value = true},
                          {.name = "v", .width = kKeyHeads * form.value_dim(), .key_value = true}},
                         kWidth, /*bias=*/false, Random()),
            RowLinear(
                {.name = "o", .in = kHeads * form.value_dim(), .out = kWidth, .init = Random()})) {}
  int64_t layers() const override { return 1; }
  int64_t max_sequence() const override { return kSequence; }
  Carried Embed(Recorder& recorder, Value tokens) const override {
    return embedding_.Embed(recorder, tokens);
  }
  Carried Block(Recorder& recorder, int64_t, const Carried& carried) const override {
    const Value x = carried.only();
    ops::DocumentBounds documents;
    if (form_.documents) {
      const auto input = [&](const char* name) {
        return recorder.Input(name, {recorder.program().tokens()}, DType::kI32,
                              recorder.info(x).varying);
      };
      documents.begins = input("begins");
      if (!form_.mask.causal && form_.ends) documents.ends = input("ends");
    }
    return ops::Add(recorder, x, attention_(recorder, x, documents));
  }
  Projection Head(Recorder& recorder, const Carried& carried) const override {
    return {.x = carried.only(), .weight = output_.Weight(recorder)};
  }

 private:
  Form form_;
  Attention attention_;
  VocabularyTable embedding_{"embedding", kVocab + 1, kWidth, Random()};
  VocabularyTable output_{"output", kVocab + 1, kWidth, Random()};
};

Program Record(const Form& form, const Mesh& mesh, ContextExchange exchange) {
  return RecordTraining(AttentionModel(form), {.record = {.precision = Precision::F64(),
                                                          .micro_batch = kSequences,
                                                          .sequence = kSequence,
                                                          .mesh = mesh,
                                                          .context_exchange = exchange},
                                               .optimizer = {}});
}

// Documents of the same lengths in each sequence: 5, 1, 11 and the rest.
std::vector<int32_t> Bounds(bool ends) {
  constexpr int32_t kAt[] = {0, 5, 6, 17, kSequence};
  std::vector<int32_t> bounds;
  for (int64_t row = 0; row < kSequences * kSequence; ++row) {
    const auto* after = std::upper_bound(std::begin(kAt), std::end(kAt), row % kSequence);
    bounds.push_back(ends ? *after : after[-1]);
  }
  return bounds;
}

// A forward pass of the same batch whatever the layout; and backward, and the sum over ranks.
double Loss(Executable& executable, bool with_backward) {
  const SequencePart part = executable.program().sequence_part();
  const auto write = [&](const std::string& name, const std::vector<int32_t>& whole) {
    std::vector<int32_t> mine;
    for (int64_t row = 0; row < kSequences * part.rows; ++row) {
      mine.push_back(whole[size_t(row / part.rows * kSequence + part.position(row % part.rows))]);
    }
    executable.WriteInput(name, 0, mine);
  };
  constexpr int64_t kTokens = kSequences * kSequence;
  executable.WriteStepState({.step = 1, .loss_scale = 1.0 / kTokens, .seed = 1});
  write("tokens", Tokens(kTokens, kVocab, 1));
  write("targets", Tokens(kTokens, kVocab, 2));
  for (const auto& [name, input] : executable.program().inputs) {
    if (name == "begins") write(name, Bounds(false));
    if (name == "ends") write(name, Bounds(true));
  }
  executable.Run(Action::kForward, {.validation = !with_backward});
  if (with_backward) {
    executable.Run(Action::kBackward);
    executable.Run(Action::kOptimizer);  // The learning rate is 0.
  }
  return executable.ReadStepState().loss;
}

class AttentionFormOpTest : public ::testing::TestWithParam<Form> {};

TEST_P(AttentionFormOpTest, GradientsMatchCentralDifferences) {
  const auto executable = Bind(Record(GetParam(), {}, ContextExchange::kRing));
  Loss(*executable, true);
  std::set<std::string> names;
  for (const ParameterBox& box : executable->program().Parameters()) {
    names.insert(box.name);
    SCOPED_TRACE(box.name);
    const auto got = ReadFlat(*executable, FlatBuffer::kGradient, box.flat);
    double* weights = executable->flat(FlatBuffer::kMaster, box.flat).as<double>();
    std::vector<double> x(weights, weights + got.size());
    const auto want = NumericGrad(x, [&] {
      std::copy(x.begin(), x.end(), weights);
      return Loss(*executable, false);
    });
    std::copy(x.begin(), x.end(), weights);
    ExpectClose(got, want, 1e-8);
  }
  EXPECT_EQ(names.contains("sinks"), GetParam().rest);
}

using Tensors = std::map<std::string, std::vector<double>>;

// This rank's pieces of the global gradients against those of one rank.
void ExpectPieces(const Executable& executable, const Tensors& want) {
  for (const ParameterBox& box : executable.program().Parameters()) {
    const auto got = ReadFlat(executable, FlatBuffer::kGradient, box.flat);
    const std::vector<double>& whole = want.at(box.name);
    const bool matrix = box.global_shape.rank() > 1;
    const int64_t columns = box.shape.back();
    std::vector<double> piece;
    for (int64_t i = 0; i < int64_t(got.size()); ++i) {
      const int64_t row = matrix ? box.offset[0] + i / columns : 0;
      piece.push_back(
          whole[size_t(row * box.global_shape.back() + box.offset.back() + i % columns)]);
    }
    SCOPED_TRACE(box.name);
    ExpectClose(got, piece, 1e-10);
  }
}

void ExpectEqualToOneRank(const Form& form, const Mesh& mesh, ContextExchange exchange) {
  const auto one = Bind(Record(form, {}, ContextExchange::kRing));
  const double want = Loss(*one, true);
  Tensors gradients;
  for (const ParameterBox& box : one->program().Parameters()) {
    gradients[box.name] = ReadFlat(*one, FlatBuffer::kGradient, box.flat);
  }
  const auto errors = RunWorlds(mesh.ranks(), [&](CollectiveWorld& world) {
    Mesh mine = mesh;
    mine.rank = world.rank();
    Program program = Record(form, mine, exchange);
    std::vector<std::unique_ptr<Collective>> owned;
    CollectiveTable table;
    for (const Group& group : program.Groups()) {
      const std::vector<int> members = mine.Members(group.axes);
      const std::string name = absl::StrCat(int(group.stream), " ", members.front(), " ",
                                            members.size(), " ", owned.size());
      owned.push_back(*world.Group(name, members));
      table[group] = owned.back().get();
    }
    const auto executable = Bind(std::move(program), 1, 1, table);
    Loss(*executable, true);
    EXPECT_NEAR(executable->ReadStepState().loss, want, 1e-12);
    ExpectPieces(*executable, gradients);
  });
  EXPECT_EQ(errors, std::vector<std::string>(size_t(mesh.ranks())));
}

TEST_P(AttentionFormOpTest, ContextAndTensorRanksEqualOneRank) {
  ExpectEqualToOneRank(GetParam(), {.tensor = 2}, ContextExchange::kRing);
  ExpectEqualToOneRank(GetParam(), {.tensor = 4, .kv_replicas = 2}, ContextExchange::kRing);
  for (const ContextExchange exchange : {ContextExchange::kRing, ContextExchange::kAllGather}) {
    for (const int context : {2, 3, 4}) {
      SCOPED_TRACE(absl::StrCat(context, exchange == ContextExchange::kRing ? " ring" : " gather"));
      ExpectEqualToOneRank(GetParam(), {.context = context}, exchange);
    }
  }
  ExpectEqualToOneRank(GetParam(), {.tensor = 2, .context = 2}, ContextExchange::kRing);
}

std::vector<Form> Forms() {
  std::vector<Form> forms;
  const std::pair<const char*, AttentionMask> masks[] = {
      {"causal", {}}, {"full", kFull}, {"window", {.window = 5}}, {"narrow", {.window = 2}}};
  for (const auto& [name, mask] : masks) {
    for (const bool documents : {false, true}) {
      for (const bool rest : {false, true}) {
        forms.push_back({absl::StrCat(name, documents ? "_documents" : "", rest ? "_rest" : ""),
                         mask, documents, rest});
      }
    }
  }
  return forms;
}
INSTANTIATE_TEST_SUITE_P(Forms, AttentionFormOpTest, ::testing::ValuesIn(Forms()),
                         [](const auto& info) { return info.param.name; });

// Of each rank's rows, over all turns: every pair that the mask lets through, once; and no part
// without any.
TEST(ContextParts, CoverEachPairOnce) {
  for (const AttentionMask& mask : {AttentionMask{}, kFull, AttentionMask{.window = 1},
                                    AttentionMask{.window = 3}, AttentionMask{.window = 9}}) {
    for (const bool documents : {false, true}) {
      for (const int64_t ranks : {2, 3, 4}) {
        SCOPED_TRACE(absl::StrCat(mask.causal, " ", mask.window, " ", documents, " ", ranks));
        const int64_t rows = 4;
        std::multiset<std::pair<int64_t, int64_t>> met, wanted;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const ops::Ring ring = {ranks, rank};
          double pairs = 0;
          for (int64_t turn = 0; turn < ranks; ++turn) {
            const SequencePart mine = {rows, ranks, rank}, keys = {rows, ranks, ring.before(turn)};
            for (const auto& [part, first] : ops::PartsOf(ring, turn, rows, mask, documents)) {
              int64_t seen = 0;
              for (int64_t i = 0; i < part.q_rows; ++i) {
                const KeyInterval sees =
                    KeysSeen(part.mask, part.q_position + i, part.kv_position + part.kv_rows);
                for (int64_t j = 0; j < part.kv_rows; ++j) {
                  if (part.kv_position + j < sees.begin || part.kv_position + j >= sees.end)
                    continue;
                  ++seen;
                  met.emplace(mine.position(part.q_begin + i), keys.position(part.kv_begin + j));
                }
              }
              EXPECT_GT(seen, 0);
              pairs += double(seen);
            }
          }
          EXPECT_EQ(pairs, ops::PairsOn(ring, rows, mask));
        }
        for (int64_t i = 0; i < ranks * rows; ++i) {
          const KeyInterval sees = KeysSeen(mask, i, ranks * rows);
          for (int64_t j = sees.begin; j < sees.end; ++j) wanted.emplace(i, j);
        }
        EXPECT_EQ(met, wanted);
        EXPECT_EQ(double(wanted.size()), PairsSeen(mask, 0, ranks * rows, ranks * rows));
      }
    }
  }
}

// A narrow window: of four ranks' eight chunks a chunk sees itself and the one before.
TEST(ContextParts, PartsThatNoQuerySeesAreLeftOut) {
  size_t parts = 0;
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (int64_t turn = 0; turn < 4; ++turn) {
      parts += ops::PartsOf({4, rank}, turn, 8, {.window = 3}, false).size();
    }
  }
  EXPECT_EQ(parts, 8u + 7u);
}

// Forward: two products over keys and values; backward: four.
TEST(AttentionFlops, CountThePairsThatTheMaskLetsThrough) {
  const auto flops_of = [](const Form& form, const char* op) {
    const Program program = Record(form, {}, ContextExchange::kRing);
    for (const Instance& instance : program.instances) {
      if (instance.op->name() == op) return instance.op->CostOf(program, instance).flops;
    }
    return 0.0;
  };
  const double heads = kSequences * kHeads, triangle = kSequence * (kSequence + 1) / 2;
  const double band = 5 * 6 / 2 + (kSequence - 5) * 5;
  EXPECT_EQ(flops_of({"causal"}, "attention"), heads * triangle * 2 * 2 * kHeadDim);
  EXPECT_EQ(flops_of({"window", {.window = 5}}, "attention"), heads * band * 2 * 2 * kHeadDim);
  EXPECT_EQ(flops_of({"full", kFull}, "attention"),
            heads * kSequence * kSequence * 2 * 2 * kHeadDim);
  EXPECT_EQ(flops_of({"rest", {.window = 5}, false, true}, "attention"),
            heads * band * 2 * (kHeadDim + 3));
  EXPECT_EQ(flops_of({"rest", {.window = 5}, false, true}, "attention_backward"),
            heads * band * 2 * 2 * (kHeadDim + 3));
}

TEST(AttentionFormDeathTest, NamesWhatIsWrong) {
  Form form{"window", {.causal = false, .window = 5}};
  EXPECT_DEATH(Record(form, {}, ContextExchange::kRing),
               "attention window: 5 of a full mask, legal is 0");
  form = {"full", kFull, /*documents=*/true, /*rest=*/false, /*ends=*/false};
  EXPECT_DEATH(Record(form, {}, ContextExchange::kRing),
               "a full mask takes both where documents begin and where they end, or neither");
  const ColumnLinear qkv({{"qkv", 8}}, 4, false, Random());
  const RowLinear out({.name = "o", .in = 4, .out = 4, .init = Random()});
  EXPECT_DEATH(Attention({.heads = 2,
                          .kv_heads = 1,
                          .head_dim = 2,
                          .rope = {},
                          .sinks = ParameterSpec{.name = "sinks", .shape = {3}}},
                         qkv, out),
               "attention sinks: sinks \\[3\\] for 2 query heads");
  EXPECT_DEATH(Attention({.heads = 2,
                          .kv_heads = 1,
                          .head_dim = 2,
                          .rope = {},
                          .qk_norm = QkNorm("attention", 2, 1e-5),
                          .value_head_dim = 4},
                         qkv, out),
               "attention value_head_dim: 4 with normalised .* legal is head_dim 2");
}

// What a plain model's program says is what it said before there were forms.
TEST(AttentionForm, IsPrintedWhereItIsNotTheDefault) {
  const auto printed = [](const Form& form) {
    const Program program = Record(form, {}, ContextExchange::kRing);
    for (const Instance& instance : program.instances) {
      if (instance.op->name() == "attention") return instance.op->attributes();
    }
    return std::string();
  };
  EXPECT_EQ(printed({"causal"}), "heads=4 kv_heads=2 head_dim=4 sequence=24");
  EXPECT_EQ(printed({"full", kFull}), "heads=4 kv_heads=2 head_dim=4 sequence=24 full");
  EXPECT_EQ(printed({"rest", {.window = 5}, false, true}),
            "heads=4 kv_heads=2 head_dim=4 sequence=24 value_head_dim=3 window=5 soft_cap=1.5 "
            "scale=0.8");
}

}  // namespace
}  // namespace trainyard::testing
