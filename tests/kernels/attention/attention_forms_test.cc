// Proves what kernels/attention/attention.h and attention_part.h have beside plain causal
// attention: every mask with and without documents, sinks, a soft cap, dropout and values of
// another width than keys. Forward is compared with the definition written plainly, gradients with
// numeric differentiation in f64, lower precisions with f64, and attention part by part with the
// whole.

#include "tests/kernels/attention/attention_forms.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainyard::testing::attention_forms {

// What the probability of a query and a key is multiplied by.
double DropoutFactor(const Form& form, const Bounds& bounds, int64_t row, int64_t head, int64_t j) {
  const AttentionDropout dropout = DropoutOf(form);
  const int64_t sample = bounds.samples.v[size_t(row)], i = row % form.sequence;
  const int64_t element =
      ((sample * dropout.heads + dropout.first_head + head) * dropout.sequence + i) *
          dropout.sequence +
      j;
  const DropoutKey key(dropout.place, kState);
  return key.keeps(uint64_t(element)) ? 1 / (1 - form.dropout) : 0;
}

bool Sees(const Form& form, const Bounds& bounds, int64_t b, int64_t i, int64_t j) {
  if (form.mask.causal && j > i) return false;
  if (form.mask.window > 0 && i - j >= form.mask.window) return false;
  const size_t row = size_t(b * form.sequence + i);
  return form.documents == 0 || (j >= bounds.begins.v[row] && j < bounds.ends.v[row]);
}

// The definition, one query at a time.
Outputs<double> PlainForward(const Form& form, const Tensors<double>& in) {
  const Bounds bounds(form);
  const int64_t d = form.head_dim, e = form.value_dim, g = form.kv_heads;
  const int64_t q_row = in.q.shape.back(), kv_row = in.kv.shape.back();
  auto o = Poisoned(form, in);
  o.out = Zeros<double>(o.out.shape);
  for (int64_t task = 0; task < form.rows() * form.heads; ++task) {
    const int64_t row = task / form.heads, head = task % form.heads;
    const int64_t kv = head / (form.heads / g), b = row / form.sequence, i = row % form.sequence;
    std::vector<double> p(size_t(form.sequence), 0.0);
    double sum = form.sinks ? std::exp(in.sinks.v[head]) : 0;
    for (int64_t j = 0; j < form.sequence; ++j) {
      if (!Sees(form, bounds, b, i, j)) continue;
      double score = 0;
      for (int64_t c = 0; c < d; ++c) {
        score += in.q.v[row * q_row + head * d + c] *
                 in.kv.v[(b * form.sequence + j) * kv_row + kv * d + c];
      }
      score *= form.scale;
      if (form.soft_cap > 0) score = form.soft_cap * std::tanh(score / form.soft_cap);
      sum += p[j] = std::exp(score);
    }
    for (int64_t j = 0; j < form.sequence; ++j) {
      const double factor = DropoutFactor(form, bounds, row, head, j);
      for (int64_t c = 0; c < e; ++c) {
        o.out.v[(row * form.heads + head) * e + c] +=
            p[j] / sum * factor * in.kv.v[(b * form.sequence + j) * kv_row + g * d + kv * e + c];
      }
    }
    o.lse.v[(b * form.heads + head) * form.sequence + i] = std::log(sum);
  }
  return o;
}

class AttentionFormTest : public ::testing::TestWithParam<Form> {
 protected:
  Form form = GetParam();
  Tensors<double> in = Random(form);
};

TEST_P(AttentionFormTest, ForwardMatchesTheDefinition) {
  const auto got = Compute(form, in);
  const auto want = PlainForward(form, in);
  ExpectClose(got.out.v, want.out.v, 1e-12);
  ExpectClose(got.lse.v, want.lse.v, 1e-12);
}

template <typename T>
void ExpectAgreesWithF64(const Form& form, const Tensors<double>& exact) {
  const auto in = exact.As<T>();
  ExpectAgrees(form, Compute(form, in), Compute(form, in.template As<double>()));
}

TEST_P(AttentionFormTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(form, in);
  ExpectAgreesWithF64<bf16>(form, in);
}

TEST_P(AttentionFormTest, ThreadsDoNotChangeBits) {
  const auto f32 = in.As<float>();
  const auto one = Compute(form, f32, Kernels(1)), three = Compute(form, f32, Kernels(3));
  EXPECT_EQ(one.out.v, three.out.v);
  EXPECT_EQ(QueryColumns(form, one.dq), QueryColumns(form, three.dq));
  EXPECT_EQ(one.dkv.v, three.dkv.v);
  if (form.sinks) {
    EXPECT_EQ(one.dsinks.v, three.dsinks.v);
  }
}

TEST_P(AttentionFormTest, PartsByPositionAreTheWhole) {
  const auto want = Compute(form, in);
  for (const int64_t chunks : {1, 3}) {
    if (form.sequence % chunks != 0) continue;
    SCOPED_TRACE(chunks);
    const auto got = Parts(form, in, chunks);
    ExpectClose(got.out.v, want.out.v, 1e-12);
    ExpectClose(got.lse.v, want.lse.v, 1e-12);
    ExpectClose(QueryColumns(form, got.dq), QueryColumns(form, want.dq), 1e-12);
    ExpectClose(got.dkv.v, want.dkv.v, 1e-12);
    if (form.sinks) ExpectClose(got.dsinks.v, want.dsinks.v, 1e-12);
  }
}

// Windows of one key, within a tile, across tiles and longer than the sequence; tiles that no query
// sees; documents of one token; strips cut short; groups; all of it together.
INSTANTIATE_TEST_SUITE_P(
    Forms, AttentionFormTest,
    ::testing::Values(Form{"full", 2, 69, 4, 2, 6, 6, kFull},
                      Form{"wide_values", 1, 66, 2, 1, 8, 24},
                      Form{"narrow_values", 1, 66, 2, 2, 24, 5},
                      Form{"window_of_one", 1, 33, 2, 1, 6, 6, Window(1), 0, true},
                      Form{"window", 2, 201, 4, 2, 6, 6, Window(20)},
                      Form{"window_across_tiles", 1, 300, 2, 1, 16, 16, Window(100)},
                      Form{"window_beyond", 1, 66, 2, 1, 6, 6, Window(1000)},
                      Form{"soft_cap", 1, 99, 4, 2, 6, 6, {}, 1.5},
                      Form{"sinks", 2, 99, 4, 2, 6, 6, {}, 0, true},
                      Form{"documents", 2, 201, 2, 1, 6, 6, {}, 0, false, 4},
                      Form{"full_documents", 2, 201, 2, 1, 6, 6, kFull, 0, false, 3},
                      Form{"many_documents", 1, 39, 2, 2, 6, 6, {}, 0, false, 12},
                      Form{"window_sinks", 2, 150, 8, 2, 64, 64, Window(40), 0, true, 0, 0.125},
                      Form{"window_documents", 2, 201, 2, 1, 6, 9, Window(30), 0, false, 3},
                      Form{"full_all", 2, 135, 4, 2, 10, 7, kFull, 2, true, 3},
                      Form{"dropout", 2, 201, 4, 2, 6, 6, {}, 0, false, 0, 0.4, 0.3},
                      Form{"drop_all", 2, 135, 6, 2, 16, 40, Window(50), 3, true, 2, 0.1, 0.6},
                      Form{"all", 2, 135, 6, 2, 128, 40, Window(50), 3, true, 2, 0.1}),
    [](const auto& info) { return info.param.name; });

class AttentionFormGradientTest : public AttentionFormTest {};

TEST_P(AttentionFormGradientTest, BackwardMatchesNumericGradient) {
  const auto got = Compute(form, in);
  auto o = Poisoned(form, in);
  const auto loss = [&] {
    ComputeForward(form, in, Kernels(1), o);
    return Dot(o.out, in.dout);
  };
  // Of the queries alone, and not of what is beside them.
  const int64_t width = form.heads * form.head_dim, row = width + form.beside;
  std::vector<double> queries(size_t(form.rows() * width));
  const auto query = [&](size_t i) -> double& {
    return in.q.v[i / size_t(width) * size_t(row) + i % size_t(width)];
  };
  for (size_t i = 0; i < queries.size(); ++i) queries[i] = query(i);
  const auto loss_of_queries = [&] {
    for (size_t i = 0; i < queries.size(); ++i) query(i) = queries[i];
    return loss();
  };
  ExpectGradient(QueryColumns(form, got.dq), queries, loss_of_queries, 1e-8);
  for (size_t i = 0; i < queries.size(); ++i) query(i) = queries[i];
  ExpectGradient(got.dkv.v, in.kv.v, loss, 1e-8);
  if (form.sinks) ExpectGradient(got.dsinks.v, in.sinks.v, loss, 1e-8);
}

std::vector<Form> GradientForms() {
  std::vector<Form> forms;
  const std::pair<const char*, AttentionMask> masks[] = {
      {"causal", {}}, {"full", kFull}, {"window", Window(7)}};
  for (const auto& [name, mask] : masks) {
    for (const bool rest : {false, true}) {
      for (const int64_t documents : {0, 2}) {
        forms.push_back(
            {absl::StrCat(name, rest ? "_sinks_cap" : "", documents ? "_documents" : ""), 1, 18, 2,
             1, 3, rest ? 2 : 3, mask, rest ? 1.5 : 0, rest, documents});
      }
    }
  }
  forms.push_back({"sinks", 2, 9, 4, 2, 3, 3, {}, 0, true});
  forms.push_back({"cap", 1, 34, 2, 1, 2, 4, {}, 0.8});
  forms.push_back({"dropout", 2, 34, 4, 2, 2, 3, {}, 0, true, 0, 0.4, 0.3});
  // More than a tile of keys, and queries of the next tile that see some of them.
  forms.push_back({"window_across_tiles", 1, 70, 1, 1, 1, 1, Window(20)});
  forms.push_back({"documents_across_tiles", 1, 70, 1, 1, 1, 1, {}, 0, false, 2});
  return forms;
}
INSTANTIATE_TEST_SUITE_P(Forms, AttentionFormGradientTest, ::testing::ValuesIn(GradientForms()),
                         [](const auto& info) { return info.param.name; });

// Of queries at 9 to 12 and keys at 0 to 3, with a window of 8 the first query sees two keys, the
// second one, and the others none: these have no output and no gradients, and what is merged into
// stays.
TEST(AttentionForms, QueriesThatSeeNothingHaveNoOutputAndNoGradient) {
  const Form form{"part", 1, 4, 2, 1, 4, 3};
  const auto in = Random(form);
  const Bounds bounds(form);
  const AttentionPart part = {.q_begin = 0,
                              .q_rows = 4,
                              .kv_begin = 0,
                              .kv_rows = 4,
                              .mask = Window(8),
                              .q_position = 9,
                              .kv_position = 0};
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    const bool adds = write == Write::kAdd;
    auto o = Poisoned(form, in);
    if (adds) {
      o.out = Normal<double>(o.out.shape, 5), o.lse = Normal<double>(o.lse.shape, 6);
      o.dkv = Zeros<double>(o.dkv.shape);
      for (size_t i = 0; i < o.dq.v.size(); ++i) {
        if (i % 11 < 8) o.dq.v[i] = 0;  // Beside the queries it stays poisoned.
      }
    }
    const auto before = o;
    auto args = ArgsOf<AttentionPartForwardArgs>(form, in, bounds);
    args.part = part, args.out = o.out, args.lse = o.lse, args.write = write;
    Call(args);
    for (int64_t i = 0; i < o.out.shape.elements(); ++i) {
      const bool sees = i / o.out.shape.back() < 2;
      if (sees) {
        EXPECT_NE(o.out.v[i], before.out.v[i]);
      } else {
        EXPECT_EQ(o.out.v[i], adds ? before.out.v[i] : 0);
      }
    }
    for (int64_t i = 0; i < o.lse.shape.elements(); ++i) {
      if (i % 4 > 1) {
        EXPECT_EQ(o.lse.v[i], adds ? before.lse.v[i] : -std::numeric_limits<double>::infinity());
      }
    }
    if (!adds) {  // Nothing merged into nothing.
      auto again = o;
      args.out = again.out, args.lse = again.lse, args.write = Write::kAdd;
      Call(args);
      for (size_t i = 2 * 2 * 3; i < o.out.v.size(); ++i) EXPECT_EQ(again.out.v[i], 0);
      for (const size_t i : {2, 3, 6, 7}) EXPECT_EQ(again.lse.v[i], o.lse.v[i]);
    }
    auto backward = ArgsOf<AttentionPartBackwardArgs>(form, in, bounds);
    backward.part = part, backward.out = o.out, backward.lse = o.lse, backward.dout = in.dout;
    TakeGradients(form.dims(), o.dq, o.dkv, backward);
    backward.write_dq = backward.write_dkv = write;
    Call(backward);
    const auto dq = QueryColumns(form, o.dq);
    EXPECT_NE(dq[0], 0);
    for (size_t i = 2 * 8; i < dq.size(); ++i) EXPECT_EQ(dq[i], 0) << "at " << i;
    EXPECT_NE(o.dkv.v[2 * 7], 0);
    for (size_t i = 0; i < 2 * 7; ++i) EXPECT_EQ(o.dkv.v[i], 0) << "at " << i;
  }
}

TEST(AttentionFormDeathTest, NamesTheArgumentThatIsWrong) {
  const Form form{"sinks", 1, 8, 2, 1, 4, 4, {}, 0, true};
  const auto in = Random(form);
  auto o = Poisoned(form, in);
  auto args = ArgsOf<AttentionForwardArgs>(form, in, Bounds(form));
  args.out = o.out, args.lse = o.lse;
  const auto three = Zeros<double>({3});
  args.sinks = three;
  EXPECT_DEATH(Call(args), "attention sinks: wanted f64 with 2 elements, got f64 \\[3\\]");
  args.sinks = {};
  args.document_begins = three;
  EXPECT_DEATH(Call(args), "attention document_begins: wanted i32 with 8 elements");
  args.document_begins = {};
  args.dims.mask = {.causal = false, .window = 4};
  EXPECT_DEATH(Call(args), "attention window: 4 of a full mask, legal is 0");
  auto backward = ArgsOf<AttentionBackwardArgs>(form, in, Bounds(form));
  backward.out = o.out, backward.lse = o.lse, backward.dout = in.dout;
  TakeGradients(form.dims(), o.dq, o.dkv, backward);
  backward.sinks = in.sinks;
  EXPECT_DEATH(Call(backward), "attention dsinks: missing beside sinks");
  backward.sinks = {};
  backward.dsinks = o.dsinks;
  EXPECT_DEATH(Call(backward), "attention dsinks: without sinks");
}

}  // namespace trainyard::testing::attention_forms
