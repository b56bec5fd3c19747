// Proves attention of one query a sequence, as generation has it, against the same query beside
// another one: with documents, windows, sinks, soft caps, groups of heads, and heads whose values
// have another width than their keys. A query that sees no key has no output.

#include <limits>

#include "kernels/attention/attention_part.h"
#include "tests/kernels/attention/attention_views.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::single_query {

constexpr int64_t kBatch = 3, kKeyRows = 150;

struct Form {
  int64_t heads, kv_heads, head_dim, value_dim;
  double soft_cap;
  bool sinks;
  AttentionMask mask;
  std::vector<std::pair<int32_t, int32_t>> seen;  // By sequence; empty: by the mask.
};

template <typename T>
struct Outputs {
  Array<T> out;  // [batch, heads value_dim]
  Array<T> lse;  // [batch, heads]
};

// The results of the last of `queries` equal queries of each sequence.
template <typename T>
Outputs<T> Attend(const Form& form, int64_t queries) {
  const int64_t width = form.heads * form.head_dim, out_width = form.heads * form.value_dim;
  const int64_t kv_width = form.kv_heads * (form.head_dim + form.value_dim);
  const auto q = Normal<T>({kBatch, width}, 1), kv = Normal<T>({kBatch * kKeyRows, kv_width}, 2);
  const auto sinks = Normal<T>({form.heads}, 3);
  auto same = Poison<T>({kBatch * queries, width});
  auto begins = Filled<int32_t>({kBatch * queries}, 0), ends = begins;
  for (int64_t row = 0; row < kBatch * queries; ++row) {
    std::copy_n(q.v.begin() + row / queries * width, width, same.v.begin() + row * width);
    if (!form.seen.empty()) {
      std::tie(begins.v[row], ends.v[row]) = form.seen[size_t(row / queries)];
    }
  }
  auto out = Filled<T>({kBatch * queries, out_width}, T(7));
  auto lse = Filled<T>({kBatch, form.heads, queries}, T(7));
  const int64_t last = form.mask.causal ? 100 : kKeyRows - 1;  // Some keys are later.
  AttentionPartForwardArgs args = ViewsOf({.q = same,
                                           .kv = kv,
                                           .dims = {.sequence = queries,
                                                    .heads = form.heads,
                                                    .kv_heads = form.kv_heads,
                                                    .head_dim = form.head_dim,
                                                    .value_dim = form.value_dim,
                                                    .scale = 0.3,
                                                    .soft_cap = form.soft_cap,
                                                    .mask = form.mask},
                                           .part = {.q_begin = 0,
                                                    .q_rows = queries,
                                                    .kv_begin = 0,
                                                    .kv_rows = kKeyRows,
                                                    .mask = form.mask,
                                                    .q_position = last + 1 - queries,
                                                    .kv_sequence = kKeyRows},
                                           .out = out,
                                           .lse = lse,
                                           .write = Write::kOverwrite});
  if (form.sinks) args.sinks = sinks;
  if (!form.seen.empty()) args.document_begins = begins, args.document_ends = ends;
  Call(args);
  Outputs<T> results = {Poison<T>({kBatch, out_width}), Poison<T>({kBatch, form.heads})};
  for (int64_t b = 0; b < kBatch; ++b) {
    std::copy_n(out.v.begin() + ((b + 1) * queries - 1) * out_width, out_width,
                results.out.v.begin() + b * out_width);
    for (int64_t h = 0; h < form.heads; ++h) {
      results.lse.v[b * form.heads + h] = lse.v[((b * form.heads + h) + 1) * queries - 1];
    }
  }
  return results;
}

template <typename T>
void ExpectSame(const Form& form) {
  const Outputs<T> one = Attend<T>(form, 1), two = Attend<T>(form, 2);
  const double tolerance = Tolerance(DTypeOf<T>::value, kKeyRows);
  ExpectClose(one.out.v, two.out.v, tolerance);
  for (size_t i = 0; i < one.lse.v.size(); ++i) {
    if (std::isinf(two.lse.v[i])) {
      EXPECT_EQ(one.lse.v[i], two.lse.v[i]);
    } else {
      EXPECT_NEAR(one.lse.v[i], two.lse.v[i], tolerance * 10);
    }
  }
}

class SingleQuery : public ::testing::TestWithParam<std::pair<const char*, Form>> {};

TEST_P(SingleQuery, HasTheResultsThatItHasBesideAnother) {
  ExpectSame<float>(GetParam().second);
  ExpectSame<double>(GetParam().second);
}

const std::vector<std::pair<int32_t, int32_t>> kSeen = {{0, 1}, {64, 150}, {3, 131}};
const AttentionMask kFull = {.causal = false};

INSTANTIATE_TEST_SUITE_P(
    Forms, SingleQuery,
    ::testing::Values(
        std::pair("full", Form{4, 4, 16, 16, 0, false, kFull, {}}),
        std::pair("causal", Form{4, 2, 16, 16, 0, false, {.causal = true}, {}}),
        std::pair("window", Form{4, 2, 16, 16, 0, true, {.causal = true, .window = 70}, {}}),
        std::pair("documents", Form{6, 2, 24, 24, 0, false, kFull, kSeen}),
        std::pair("sinks", Form{4, 1, 20, 20, 0, true, kFull, kSeen}),
        std::pair("soft_cap", Form{4, 4, 8, 8, 2, false, kFull, kSeen}),
        std::pair("latent", Form{3, 3, 24, 16, 0, false, kFull, kSeen}),
        std::pair("nothing", Form{4, 2, 16, 16, 0, false, kFull, {{0, 0}, {5, 5}, {0, 9}}}),
        std::pair("sinks_alone", Form{4, 2, 16, 16, 0, true, kFull, {{0, 0}, {5, 5}, {0, 9}}})),
    [](const auto& info) { return std::string(info.param.first); });

}  // namespace trainyard::testing::single_query
