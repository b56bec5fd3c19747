// Proves kernels/attention/attention_part.h on the CPU: sequences that 1 to 4 ranks share out in
// zig-zag order, part by part, are attention.h on whole sequences, forward and backward; rows out
// of a part's ranges stay.

#include "kernels/attention/attention_part.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/copy_columns.h"
#include "tests/kernels/attention/attention_views.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::attention_part {

// Sequences of 2 ranks * chunk tokens; rank r holds chunks r and 2 ranks - 1 - r of each.
struct Problem {
  int64_t ranks, batch, chunk, heads, kv_heads, head_dim;
  int64_t sequence() const { return 2 * ranks * chunk; }
  int64_t local() const { return 2 * chunk; }
  int64_t out_width() const { return heads * head_dim; }
  int64_t kv_width() const { return 2 * kv_heads * head_dim; }
  int64_t width() const { return out_width() + kv_width(); }
  AttentionDims dims(int64_t rows) const {
    return {.sequence = rows,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .value_dim = head_dim,
            .scale = 1 / std::sqrt(double(head_dim))};
  }
  // Of the whole tensor, the row that is row i of a rank's.
  int64_t RowOf(int64_t rank, int64_t i) const {
    const int64_t b = i / local(), at = i % local();
    const int64_t c = at < chunk ? rank : 2 * ranks - 1 - rank;
    return b * sequence() + c * chunk + at % chunk;
  }
  // What a rank's queries see of another's keys.
  AttentionPart PartOf(int64_t rank, int64_t other) const {
    if (other == rank) return {0, local(), 0, local(), true};
    if (other < rank) return {0, local(), 0, chunk, false};
    return {chunk, chunk, 0, local(), false};
  }
};

void PrintTo(const Problem& p, std::ostream* out) {
  *out << p.ranks << " ranks, batch " << p.batch << " chunk " << p.chunk << " heads " << p.heads
       << '/' << p.kv_heads << " head_dim " << p.head_dim;
}

template <typename T>
struct Outputs {
  Array<T> out;
  Array<Accumulate<T>> lse;  // [B S, a]: rows like the others
  Array<Accumulate<T>> dqkv;
};

// The rows of one rank of a tensor of whole sequences.
template <typename T>
Array<T> RowsOf(const Array<T>& whole, const Problem& p, int64_t rank) {
  const int64_t width = whole.shape.back(), rows = p.batch * p.local();
  auto mine = Poison<T>({rows, width});
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(whole.v.begin() + p.RowOf(rank, i) * width, width, mine.v.begin() + i * width);
  }
  return mine;
}

// Columns [begin, begin + the width of mine) of one rank's rows of `whole`.
template <typename T>
void PutRows(const Array<T>& mine, const Problem& p, int64_t rank, int64_t begin, Array<T>& whole) {
  const int64_t width = mine.shape.back();
  for (int64_t i = 0; i < p.batch * p.local(); ++i) {
    std::copy_n(mine.v.begin() + i * width, width,
                whole.v.begin() + p.RowOf(rank, i) * whole.shape.back() + begin);
  }
}

// [batch, heads, rows] to [batch rows, heads].
template <typename A>
Array<A> HeadsLast(const Array<A>& lse) {
  const int64_t batch = lse.shape[0], heads = lse.shape[1], rows = lse.shape[2];
  auto to = Poison<A>({batch * rows, heads});
  for (int64_t i = 0; i < lse.shape.elements(); ++i) {
    const int64_t b = i / (heads * rows), h = i / rows % heads;
    to.v[(b * rows + i % rows) * heads + h] = lse.v[i];
  }
  return to;
}

Outputs<double> Whole(const Array<double>& qkv, const Array<double>& dout, const Problem& p) {
  Outputs<double> o{Poison<double>(dout.shape), Poison<double>({p.batch, p.heads, p.sequence()}),
                    Poison<double>(qkv.shape)};
  const AttentionDims dims = p.dims(p.sequence());
  Call(PackedForward(qkv, dims, o.out, o.lse));
  Call(PackedBackward(qkv, dims, {o.out, o.lse}, dout, o.dqkv));
  o.lse = HeadsLast(o.lse);
  return o;
}

// Whose keys a rank meets in which order, and what it sees of them.
struct Plan {
  bool descending = false;  // Its own come first in any case.
  std::function<AttentionPart(int64_t rank, int64_t other)> part;
  std::vector<int64_t> Others(int64_t rank, int64_t ranks) const {
    std::vector<int64_t> others;
    for (int64_t i = 0; i < ranks; ++i) others.push_back(descending ? ranks - 1 - i : i);
    std::stable_partition(others.begin(), others.end(), [&](int64_t i) { return i == rank; });
    return others;
  }
};

// One rank's share, with everything it keeps from forward to backward.
template <typename T>
struct Rank {
  using A = Accumulate<T>;
  Array<T> qkv, kv, dout, out;
  Array<A> sums, lse, dq, dkv;
};

template <typename T>
Outputs<T> Parts(const Array<double>& qkv, const Array<double>& dout, const Problem& p,
                 const Plan& plan) {
  using A = Accumulate<T>;
  const AttentionDims dims = p.dims(p.local());
  std::vector<Rank<T>> ranks(p.ranks);
  for (int64_t r = 0; r < p.ranks; ++r) {
    Rank<T>& rank = ranks[r];
    const int64_t rows = p.batch * p.local();
    rank = {.qkv = RowsOf(Converted<T>(qkv), p, r),
            .kv = Poison<T>({rows, p.kv_width()}),
            .dout = RowsOf(Converted<T>(dout), p, r),
            .out = Poison<T>({rows, p.out_width()}),
            .sums = Poison<A>({rows, p.out_width()}),
            .lse = Poison<A>({p.batch, p.heads, p.local()}),
            .dq = Poison<A>({rows, p.out_width()}),
            .dkv = Poison<A>({rows, p.kv_width()})};
    Call(CopyColumnsArgs{.x = rank.qkv,
                         .x_begin = p.out_width(),
                         .y = rank.kv,
                         .y_begin = 0,
                         .columns = p.kv_width()});
  }
  Outputs<T> all{Poison<T>(dout.shape), Poison<A>({p.batch * p.sequence(), p.heads}),
                 Poison<A>(qkv.shape)};
  for (int64_t r = 0; r < p.ranks; ++r) {
    for (const int64_t other : plan.Others(r, p.ranks)) {
      Call(ViewsOf(PackedPartForward{.q = ranks[r].qkv,
                                     .kv = ranks[other].kv,
                                     .dims = dims,
                                     .part = plan.part(r, other),
                                     .out = ranks[r].sums,
                                     .lse = ranks[r].lse,
                                     .write = other == r ? Write::kOverwrite : Write::kAdd}));
    }
    Call(CastArgs{.x = ranks[r].sums, .y = ranks[r].out});
    PutRows(ranks[r].out, p, r, 0, all.out);
    PutRows(HeadsLast(ranks[r].lse), p, r, 0, all.lse);
  }
  for (int64_t kv = 0; kv < p.ranks; ++kv) {
    // Gradients of one rank's keys, of which that rank sees all rows.
    for (const int64_t r : plan.Others(kv, p.ranks)) {
      Call(ViewsOf(PackedPartBackward{.q = ranks[r].qkv,
                                      .kv = ranks[kv].kv,
                                      .out = ranks[r].out,
                                      .lse = ranks[r].lse,
                                      .dout = ranks[r].dout,
                                      .dims = dims,
                                      .part = plan.part(r, kv),
                                      .dq = ranks[r].dq,
                                      .dkv = ranks[kv].dkv,
                                      .write_dq = kv == 0 ? Write::kOverwrite : Write::kAdd,
                                      .write_dkv = r == kv ? Write::kOverwrite : Write::kAdd}));
    }
  }
  for (int64_t r = 0; r < p.ranks; ++r) {
    PutRows(ranks[r].dq, p, r, 0, all.dqkv);
    PutRows(ranks[r].dkv, p, r, p.out_width(), all.dqkv);
  }
  return all;
}

class AttentionPartTest : public ::testing::TestWithParam<Problem> {
 protected:
  Problem p = GetParam();
  Array<double> qkv = Normal<double>({p.batch * p.sequence(), p.width()}, 1);
  Array<double> dout = Normal<double>({p.batch * p.sequence(), p.out_width()}, 2);
  Plan ZigZag(bool descending = false) const {
    return {descending, [this](int64_t rank, int64_t other) { return p.PartOf(rank, other); }};
  }
};

TEST_P(AttentionPartTest, PartsOfAllRanksAreTheWholeInAnyOrder) {
  const auto want = Whole(qkv, dout, p);
  for (const bool descending : {false, true}) {
    const auto got = Parts<double>(qkv, dout, p, ZigZag(descending));
    ExpectClose(got.out.v, want.out.v, 1e-12);
    ExpectClose(got.lse.v, want.lse.v, 1e-12);
    ExpectClose(got.dqkv.v, want.dqkv.v, 1e-12);
  }
}

template <typename T>
void ExpectAgreesWithF64(const Array<double>& exact, const Array<double>& exact_dout,
                         const Problem& p, const Plan& plan) {
  const auto qkv = RoundedTo<T>(exact), dout = RoundedTo<T>(exact_dout);
  const auto got = Parts<T>(qkv, dout, p, plan);
  const auto want = Whole(qkv, dout, p);
  const DType dtype = DTypeOf<T>::value;
  const int64_t reduction = p.sequence() * p.heads / p.kv_heads + p.head_dim;
  ExpectClose(Converted<double>(got.out).v, want.out.v, Tolerance(dtype, reduction));
  ExpectClose(Converted<double>(got.lse).v, want.lse.v, Tolerance(DType::kF32, reduction));
  ExpectClose(Converted<double>(got.dqkv).v, want.dqkv.v, Tolerance(dtype, reduction));
}

TEST_P(AttentionPartTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(qkv, dout, p, ZigZag());
  ExpectAgreesWithF64<bf16>(qkv, dout, p, ZigZag());
}

// One rank's wrong range shows in the whole: what this test must catch.
TEST_P(AttentionPartTest, WrongRangesAreSeen) {
  if (p.ranks == 1) return;
  const auto want = Whole(qkv, dout, p);
  const auto error = [&](int64_t rank, int64_t other, const AttentionPart& wrong) {
    const Plan plan = {false, [&](int64_t r, int64_t o) {
                         return r == rank && o == other ? wrong : p.PartOf(r, o);
                       }};
    const auto got = Parts<double>(qkv, dout, p, plan);
    return std::min(RelativeError(got.out.v, want.out.v), RelativeError(got.dqkv.v, want.dqkv.v));
  };
  const int64_t c = p.chunk, last = p.ranks - 1;
  EXPECT_GT(error(last, 0, {0, 2 * c, 0, 2 * c, false}), 1e-3) << "future keys";
  EXPECT_GT(error(last, 0, {0, 2 * c, c, c, false}), 1e-3) << "the wrong half";
  EXPECT_GT(error(0, last, {0, c, 0, 2 * c, false}), 1e-3) << "the wrong queries";
  EXPECT_GT(error(0, last, {c, c, 0, c, true}), 1e-3) << "causal where all is seen";
}

// One token a chunk; chunks of a strip, one more, one fewer; groups; odd head dims.
INSTANTIATE_TEST_SUITE_P(Problems, AttentionPartTest,
                         ::testing::Values(Problem{1, 2, 1, 1, 1, 2}, Problem{1, 1, 35, 4, 2, 16},
                                           Problem{2, 1, 1, 2, 1, 6}, Problem{2, 3, 17, 4, 2, 5},
                                           Problem{2, 1, 65, 3, 1, 33}, Problem{3, 2, 32, 2, 2, 8},
                                           Problem{3, 1, 31, 6, 2, 6}, Problem{4, 2, 33, 2, 1, 64},
                                           Problem{4, 1, 3, 1, 1, 1}));

// Queries [3, 7) and keys [5, 8) of each sequence's 10.
template <typename T>
void ExpectOnlyThePartChanges(Write write) {
  using A = Accumulate<T>;
  const Problem p = {1, 2, 5, 4, 2, 6};
  const AttentionPart part = {3, 4, 5, 3, false};
  const auto q = Normal<T>({20, p.out_width()}, 1), kv = Normal<T>({20, p.kv_width()}, 2);
  const auto final_out = Normal<T>({20, p.out_width()}, 3), dout = Normal<T>(q.shape, 4);
  const auto before = Normal<A>({20, p.out_width()}, 5);
  const auto before_lse = Normal<A>({2, 4, 10}, 6), before_dkv = Normal<A>(kv.shape, 7);
  auto out = before, dq = before, lse = before_lse, dkv = before_dkv;
  Call(ViewsOf(PackedPartForward{
      .q = q, .kv = kv, .dims = p.dims(10), .part = part, .out = out, .lse = lse, .write = write}));
  Call(ViewsOf(PackedPartBackward{.q = q,
                                  .kv = kv,
                                  .out = final_out,
                                  .lse = before_lse,
                                  .dout = dout,
                                  .dims = p.dims(10),
                                  .part = part,
                                  .dq = dq,
                                  .dkv = dkv,
                                  .write_dq = write,
                                  .write_dkv = write}));
  const auto expect = [](const Array<A>& got, const Array<A>& old, int64_t width,
                         const std::pair<int64_t, int64_t>& rows) {
    for (size_t i = 0; i < got.v.size(); ++i) {
      const int64_t row = int64_t(i) / width % 10;
      ASSERT_EQ(got.v[i] != old.v[i], row >= rows.first && row < rows.second) << "at " << i;
    }
  };
  expect(out, before, p.out_width(), {3, 7});
  expect(lse, before_lse, 1, {3, 7});
  expect(dq, before, p.out_width(), {3, 7});
  expect(dkv, before_dkv, p.kv_width(), {5, 8});
}

TEST(AttentionPart, RowsOutOfThePartStay) {
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    ExpectOnlyThePartChanges<double>(write);
    ExpectOnlyThePartChanges<float>(write);
    ExpectOnlyThePartChanges<bf16>(write);
  }
}

// Two triangles and the square below the first: keys that begin within the rows.
TEST(AttentionPart, HalvesOfASequenceAreTheWhole) {
  constexpr int64_t half = 35;
  const Problem p = {1, 2, half, 4, 2, 6};
  const auto qkv = Normal<double>({p.batch * p.local(), p.width()}, 1);
  const auto dout = Normal<double>({p.batch * p.local(), p.out_width()}, 2);
  const AttentionDims dims = p.dims(p.local());
  auto kv = Poison<double>({p.batch * p.local(), p.kv_width()}), dkv = kv,
       out = Poison<double>(dout.shape), dq = out;
  auto lse = Poison<double>({p.batch, p.heads, p.local()});
  Call(CopyColumnsArgs{
      .x = qkv, .x_begin = p.out_width(), .y = kv, .y_begin = 0, .columns = p.kv_width()});
  const std::pair<AttentionPart, Write> parts[] = {
      {{0, half, 0, half, true}, Write::kOverwrite},
      {{half, half, half, half, true}, Write::kOverwrite},
      {{half, half, 0, half, false}, Write::kAdd}};
  for (const auto& [part, write] : parts) {
    Call(ViewsOf(PackedPartForward{
        .q = qkv, .kv = kv, .dims = dims, .part = part, .out = out, .lse = lse, .write = write}));
  }
  for (const auto& [part, write] : parts) {
    Call(ViewsOf(PackedPartBackward{.q = qkv,
                                    .kv = kv,
                                    .out = out,
                                    .lse = lse,
                                    .dout = dout,
                                    .dims = dims,
                                    .part = part,
                                    .dq = dq,
                                    .dkv = dkv,
                                    .write_dq = write,
                                    .write_dkv = write}));
  }
  const auto want = Whole(qkv, dout, p);
  auto dqkv = Poison<double>(qkv.shape);
  PutRows(dq, p, 0, 0, dqkv);
  PutRows(dkv, p, 0, p.out_width(), dqkv);
  ExpectClose(out.v, want.out.v, 1e-12);
  ExpectClose(HeadsLast(lse).v, want.lse.v, 1e-12);
  ExpectClose(dqkv.v, want.dqkv.v, 1e-12);
}

// Merging weighs by exp(lse), which must not overflow, and a part of no weight must not count.
TEST(AttentionPart, LargeScoresDoNotOverflow) {
  const Problem p = {2, 1, 33, 1, 1, 4};
  auto qkv = Normal<double>({p.sequence(), p.width()}, 1);
  for (int64_t i = 0; i < p.sequence() * p.width(); ++i) {
    if (i % p.width() < 8) qkv.v[i] *= 30;
  }
  const auto dout = Normal<double>({p.sequence(), 4}, 2);
  const Plan plan = {false, [&](int64_t rank, int64_t other) { return p.PartOf(rank, other); }};
  const auto got = Parts<double>(qkv, dout, p, plan);
  const auto want = Whole(qkv, dout, p);
  ExpectClose(got.out.v, want.out.v, 1e-10);
  ExpectClose(got.dqkv.v, want.dqkv.v, 1e-10);
}

TEST(AttentionPart, ThreadsDoNotChangeBits) {
  const Problem p = {1, 3, 35, 4, 2, 16};
  const int64_t rows = p.batch * p.local();
  const auto q = Normal<float>({rows, p.out_width()}, 1),
             kv = Normal<float>({rows, p.kv_width()}, 2);
  const auto dout = Normal<float>(q.shape, 3);
  const auto compute = [&](int threads) {
    auto out = Normal<float>(q.shape, 4), dq = Normal<float>(q.shape, 5);
    auto lse = Normal<float>({p.batch, p.heads, p.local()}, 6), dkv = Normal<float>(kv.shape, 7);
    const AttentionPart part = {35, 35, 0, 70, false};
    Call(ViewsOf(PackedPartForward{.q = q,
                                   .kv = kv,
                                   .dims = p.dims(p.local()),
                                   .part = part,
                                   .out = out,
                                   .lse = lse,
                                   .write = Write::kAdd}),
         threads);
    Call(ViewsOf(PackedPartBackward{.q = q,
                                    .kv = kv,
                                    .out = out,
                                    .lse = lse,
                                    .dout = dout,
                                    .dims = p.dims(p.local()),
                                    .part = part,
                                    .dq = dq,
                                    .dkv = dkv,
                                    .write_dq = Write::kAdd,
                                    .write_dkv = Write::kAdd}),
         threads);
    return std::vector{out.v, lse.v, dq.v, dkv.v};
  };
  EXPECT_EQ(compute(1), compute(3));
}

TEST(AttentionPartDeathTest, NamesTheRangeOrArgumentThatIsWrong) {
  const Problem p = {1, 2, 2, 2, 1, 8};
  auto q = Zeros<bf16>({8, 16}), kv = Zeros<bf16>({8, 16});
  auto out = Zeros<float>({8, 16}), lse = Zeros<float>({2, 2, 4});
  const auto run = [&](const AttentionPart& part) {
    Call(ViewsOf(PackedPartForward{.q = q,
                                   .kv = kv,
                                   .dims = p.dims(4),
                                   .part = part,
                                   .out = out,
                                   .lse = lse,
                                   .write = Write::kOverwrite}));
  };
  run({0, 4, 0, 4, true});
  EXPECT_DEATH(run({2, 3, 0, 3, false}), "attention_part q_begin: 3 rows from 2 of 4");
  EXPECT_DEATH(run({0, 4, -1, 2, false}), "attention_part kv_begin: 2 rows from -1 of 4");
  EXPECT_DEATH(run({0, 4, 0, 4, {.causal = false, .window = 2}}),
               "attention window: 2 of a full mask, legal is 0");
  EXPECT_DEATH(run({0, 4, 0, 4, {}, -1, 0}), "attention_part q_position: -1");
  kv = Zeros<bf16>({8, 8});
  EXPECT_DEATH(run({0, 4, 0, 4, true}), "columns 8 to 16 of \\[8, 8\\]");
  kv = Zeros<bf16>({6, 16});
  EXPECT_DEATH(run({0, 4, 0, 4, true}), "attention k: wanted bf16 \\[8, 8\\], got bf16 \\[6, 8\\]");
}

// Sequences of some queries over more rows of keys, of which each query sees some, as texts that
// grow have them. Each sequence is computed as it is alone.
TEST(AttentionPart, KeysMayHaveAnotherNumberOfRowsThanQueries) {
  constexpr int64_t kSequences = 3, kQueries = 2, kKeys = 150, kHeads = 4, kGroups = 2, kDim = 8;
  const AttentionDims dims = {.sequence = kQueries,
                              .heads = kHeads,
                              .kv_heads = kGroups,
                              .head_dim = kDim,
                              .value_dim = kDim,
                              .scale = 0.3,
                              .mask = {.causal = false}};
  const auto q = Normal<double>({kSequences * kQueries, dims.query_columns()}, 1);
  const auto kv = Normal<double>({kSequences * kKeys, 2 * dims.key_columns()}, 2);
  const Array<int32_t> begins = {{kSequences * kQueries}, {0, 3, 70, 70, 149, 0}};
  const Array<int32_t> ends = {{kSequences * kQueries}, {1, 150, 71, 140, 150, 0}};
  const auto call = [&](int64_t first, int64_t sequences, Array<double>& out, Array<double>& lse) {
    const auto rows = [&](const auto& whole, int64_t each) {
      const int64_t columns = whole.shape.elements() / whole.shape[0];
      using Values = std::decay_t<decltype(whole.v)>;
      const auto begin = whole.v.begin() + first * each * columns;
      return std::decay_t<decltype(whole)>{{sequences * each, columns},
                                           Values(begin, begin + sequences * each * columns)};
    };
    const auto q_rows = rows(q, kQueries), kv_rows = rows(kv, kKeys);
    const auto begin_rows = rows(begins, kQueries), end_rows = rows(ends, kQueries);
    out = Poison<double>({sequences * kQueries, dims.out_columns()});
    lse = Poison<double>({sequences, kHeads, kQueries});
    auto args = ViewsOf(PackedPartForward{.q = q_rows,
                                          .kv = kv_rows,
                                          .dims = dims,
                                          .part = {.q_begin = 0,
                                                   .q_rows = kQueries,
                                                   .kv_begin = 0,
                                                   .kv_rows = kKeys,
                                                   .mask = dims.mask,
                                                   .kv_sequence = kKeys},
                                          .out = out,
                                          .lse = lse,
                                          .write = Write::kOverwrite});
    args.document_begins = begin_rows, args.document_ends = end_rows;
    Call(args);
  };
  Array<double> out, lse, one, one_lse;
  call(0, kSequences, out, lse);
  for (int64_t s = 0; s < kSequences; ++s) {
    call(s, 1, one, one_lse);
    const auto from = out.v.begin() + s * int64_t(one.v.size());
    EXPECT_EQ(one.v, std::vector<double>(from, from + int64_t(one.v.size()))) << s;
    const auto of_lse = lse.v.begin() + s * int64_t(one_lse.v.size());
    EXPECT_EQ(one_lse.v, std::vector<double>(of_lse, of_lse + int64_t(one_lse.v.size()))) << s;
  }
  // The first query sees one key, and the last one none.
  EXPECT_EQ(out.v[0], kv.v[size_t(dims.key_columns())]);
  EXPECT_EQ(out.v.back(), 0);
}

}  // namespace trainyard::testing::attention_part
