// Proves kernels/state_space/state_ends.h: ends against the plain recurrence, starts against a
// chain of ends, the gradients of both against numeric differentiation in f64; and that a sequence
// in parts, which ranks hold in zig-zag order, has the results and gradients of the whole sequence.

#include "kernels/state_space/state_ends.h"

#include <limits>

#include "tests/kernels/state_space/state_space.h"

namespace trainyard::testing::state_ends {

template <typename T>
Array<Accumulate<T>> Ends(const StateInputs& in, const StateSize& size, int threads = 2) {
  using A = Accumulate<T>;
  const StateDims& dims = size.dims;
  const StateOperands<T> o(in);
  auto ends = Poison<A>({size.parts, dims.state_columns() + dims.heads});
  Call(StateEndsForwardArgs{.xbc = o.xbc,
                            .dt = o.dt,
                            .dt_bias = o.dt_bias,
                            .a_log = o.a_log,
                            .dims = dims,
                            .ends = ends,
                            .document_positions = o.positions},
       threads);
  return ends;
}

template <typename T>
StateGradients<T> EndsBackward(const StateInputs& in, const Array<double>& dends64,
                               const StateSize& size, int threads = 2,
                               std::optional<double> before = {}) {
  using A = Accumulate<T>;
  const StateOperands<T> o(in);
  const auto dends = Converted<A>(dends64);
  StateGradients<T> out(in, A(before.value_or(NAN)));
  const Write write = before.has_value() ? Write::kAdd : Write::kOverwrite;
  Call(StateEndsBackwardArgs{.dends = dends,
                             .xbc = o.xbc,
                             .dt = o.dt,
                             .dt_bias = o.dt_bias,
                             .a_log = o.a_log,
                             .dims = size.dims,
                             .dxbc = out.xbc,
                             .ddt = out.dt,
                             .ddt_bias = out.dt_bias,
                             .da_log = out.a_log,
                             .write_ddt_bias = write,
                             .write_da_log = write,
                             .document_positions = o.positions},
       threads);
  return out;
}

StateSize Size(int64_t parts, int64_t heads, int64_t groups, int64_t head_dim, int64_t state,
               int64_t sequence) {
  return {parts,
          {.heads = heads,
           .groups = groups,
           .head_dim = head_dim,
           .state = state,
           .sequence = sequence}};
}
StateSize WithDocuments(StateSize size, std::vector<int64_t> begins) {
  size.begins = std::move(begins);
  return size;
}

// Ends with 0 where the log of a decay is minus infinity, as it is exactly in parts in which a
// document begins.
template <typename A>
Array<A> WithoutInfinity(const StateSize& size, Array<A> ends) {
  for (int64_t part = 0; part < size.parts; ++part) {
    const int64_t first = part * size.dims.sequence;
    const bool begins = std::any_of(size.begins.begin(), size.begins.end(), [&](int64_t t) {
      return t >= first && t < first + size.dims.sequence;
    });
    for (int64_t h = 0; h < size.dims.heads; ++h) {
      A& decay = ends.v[size_t(part * ends.shape.back() + size.dims.state_columns() + h)];
      EXPECT_EQ(decay == -std::numeric_limits<A>::infinity(), begins) << part;
      if (begins) decay = 0;
    }
  }
  return ends;
}

TEST(StateEnds, AreTheRecurrencesLastStatesAndItsDecay) {
  for (const StateSize& size : {Size(2, 4, 2, 3, 5, 7), Size(1, 2, 1, 16, 20, 300),
                                WithDocuments(Size(3, 4, 2, 3, 5, 7), {7, 17, 20}),
                                WithDocuments(Size(2, 2, 1, 16, 20, 300), {127, 200, 364, 365})}) {
    StateInputs in = MakeStateInputs(size);
    in.start = Zeros<double>(in.start.shape);
    const StateDims& dims = size.dims;
    auto want = Zeros<double>({size.parts, dims.state_columns() + dims.heads});
    ForEachHead(in, size, [&](HeadRecurrence& head, int64_t part, int64_t h) {
      double* const row = &want.v[size_t(part * want.shape.back())];
      for (int64_t n = 0; n < dims.state; ++n) {
        for (int64_t p = 0; p < dims.head_dim; ++p) {
          row[(h * dims.state + n) * dims.head_dim + p] = head.End(n, p);
        }
      }
      row[dims.state_columns() + h] = head.WholeDecay();
    });
    ExpectClose(WithoutInfinity(size, Ends<double>(in, size)).v, WithoutInfinity(size, want).v,
                1e-13);
  }
}

class StateEndsGradientTest : public ::testing::TestWithParam<StateSize> {};

TEST_P(StateEndsGradientTest, BackwardMatchesNumericGradient) {
  const StateSize size = GetParam();
  StateInputs in = MakeStateInputs(size);
  for (double& a : in.a_log.v) a -= 6;  // So that a state lasts for chunks.
  const auto dends = Normal<double>(Ends<double>(in, size).shape, 9);
  const auto loss = [&] {
    return Dot(WithoutInfinity(size, Ends<double>(in, size, /*threads=*/1)), dends);
  };
  const auto got = EndsBackward<double>(in, dends, size);
  ExpectClose(got.xbc.v, NumericGrad(in.xbc.v, loss), 1e-8);
  ExpectClose(got.dt.v, NumericGrad(in.dt.v, loss), 1e-8);
  ExpectClose(got.dt_bias.v, NumericGrad(in.dt_bias.v, loss), 1e-8);
  ExpectClose(got.a_log.v, NumericGrad(in.a_log.v, loss), 1e-8);
  const auto added = EndsBackward<double>(in, dends, size, 2, /*before=*/0.5);
  EXPECT_NEAR(added.dt_bias.v[1], got.dt_bias.v[1] + 0.5, 1e-12);
  EXPECT_NEAR(added.a_log.v[1], got.a_log.v[1] + 0.5, 1e-12);
}

// The last size has several chunks, in one of which a document begins.
INSTANTIATE_TEST_SUITE_P(Sizes, StateEndsGradientTest,
                         ::testing::Values(Size(2, 2, 1, 2, 3, 4),
                                           WithDocuments(Size(3, 2, 1, 2, 3, 4), {4, 9, 11}),
                                           WithDocuments(Size(1, 2, 1, 2, 2, 136), {3, 70})));

template <typename T>
void ExpectAgreesWithF64(const StateSize& size) {
  const StateInputs in = RoundedTo<T>(MakeStateInputs(size));
  const auto want = WithoutInfinity(size, Ends<double>(in, size));
  const auto dends = RoundedTo<Accumulate<T>>(Normal<double>(want.shape, 9));
  const double tolerance = 3 * Tolerance(DTypeOf<T>::value, size.tokens());
  ExpectClose(Converted<double>(WithoutInfinity(size, Ends<T>(in, size))).v, want.v, tolerance);
  const auto got = EndsBackward<T>(in, dends, size);
  const auto exact = EndsBackward<double>(in, dends, size);
  ExpectClose(Converted<double>(got.xbc).v, exact.xbc.v, tolerance);
  ExpectClose(Converted<double>(got.dt).v, exact.dt.v, tolerance);
  ExpectClose(Converted<double>(got.dt_bias).v, exact.dt_bias.v, tolerance);
  ExpectClose(Converted<double>(got.a_log).v, exact.a_log.v, tolerance);
}

TEST(StateEnds, LowerPrecisionsAgreeWithF64) {
  for (const StateSize& size : {Size(2, 4, 2, 3, 5, 7), Size(1, 2, 1, 16, 24, 150),
                                WithDocuments(Size(2, 2, 1, 16, 24, 150), {20, 70})}) {
    ExpectAgreesWithF64<float>(size);
    ExpectAgreesWithF64<bf16>(size);
  }
}

// A chain of parts: `ranks` ranks have two parts each of `sequences` sequences.
struct ChainSize {
  int64_t sequences, ranks, heads, elements;      // Of a head's state.
  int64_t rows() const { return 2 * sequences; }  // Of one rank.
  int64_t columns() const { return heads * (elements + 1); }
};

Array<double> Starts(const Array<double>& ends, const ChainSize& size, int64_t rank) {
  auto starts = Poison<double>({size.rows(), size.heads * size.elements});
  Call(StateStartsForwardArgs{
      .ends = ends, .heads = size.heads, .ranks = size.ranks, .rank = rank, .starts = starts});
  return starts;
}

Array<double> StartsBackward(const Array<double>& dstarts, const Array<double>& ends,
                             const ChainSize& size, int64_t rank) {
  auto dends = Poison<double>(ends.shape);
  Call(StateStartsBackwardArgs{.dstarts = dstarts,
                               .ends = ends,
                               .heads = size.heads,
                               .ranks = size.ranks,
                               .rank = rank,
                               .dends = dends});
  return dends;
}

TEST(StateStarts, BackwardMatchesNumericGradient) {
  for (const ChainSize& size : {ChainSize{2, 3, 2, 5}, ChainSize{1, 1, 1, 1}}) {
    auto ends = Normal<double>({size.ranks * size.rows(), size.columns()}, 1);
    // A document begins in this rank's first part.
    ends.v[size_t(size.columns() - 1)] = -std::numeric_limits<double>::infinity();
    for (int64_t rank = 0; rank < size.ranks; ++rank) {
      const auto dstarts = Normal<double>({size.rows(), size.heads * size.elements}, 2);
      const auto loss = [&] { return Dot(Starts(ends, size, rank), dstarts); };
      ExpectClose(StartsBackward(dstarts, ends, size, rank).v, NumericGrad(ends.v, loss), 1e-8);
    }
  }
}

// What one rank has of a sequence of 2n parts: its parts r and 2n-1-r, one after the other. The
// parameter is where documents begin.
class PartsTest : public ::testing::TestWithParam<std::vector<int64_t>> {
 protected:
  static constexpr int64_t kRanks = 3, kRows = 9;  // Rows of a part.
  const StateSize whole = WithDocuments(Size(1, 4, 2, 3, 5, 2 * kRanks * kRows), GetParam());
  const StateSize ours = Size(2, 4, 2, 3, 5, kRows);
  const ChainSize chain = {1, kRanks, 4, 15};
  StateInputs in = MakeStateInputs(whole);

  // The rows of a rank's parts, taken from those of the sequence.
  template <typename T>
  Array<T> OfRank(const Array<T>& all, int64_t rank) const {
    Array<T> rows = RowsOf(all, rank * kRows, kRows);
    const auto second = RowsOf(all, (2 * kRanks - 1 - rank) * kRows, kRows);
    rows.v.insert(rows.v.end(), second.v.begin(), second.v.end());
    rows.shape = {2 * kRows, all.shape.back()};
    return rows;
  }
  StateInputs InputsOf(int64_t rank) const {
    StateInputs inputs = in;
    inputs.xbc = OfRank(in.xbc, rank), inputs.dt = OfRank(in.dt, rank);
    inputs.start = Zeros<double>({2, ours.dims.state_columns()});
    if (in.positions.v.empty()) return inputs;
    Array<int32_t> column = in.positions;
    column.shape = {whole.tokens(), 1};
    inputs.positions = OfRank(column, rank);
    return inputs;
  }
  Array<double> GatheredEnds() const {
    auto all = Zeros<double>({0, chain.columns()});
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const auto ends = Ends<double>(InputsOf(rank), ours);
      all.v.insert(all.v.end(), ends.v.begin(), ends.v.end());
    }
    all.shape = {2 * kRanks, chain.columns()};
    return all;
  }
  void SetUp() override { in.start = Zeros<double>(in.start.shape); }
};

TEST_P(PartsTest, HaveTheResultsOfTheWholeSequence) {
  const auto want = Scan<double>(in, whole);
  const auto ends = GatheredEnds();
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    StateInputs inputs = InputsOf(rank);
    inputs.start = Starts(ends, chain, rank);
    ExpectClose(Scan<double>(inputs, ours).v, OfRank(want, rank).v, 1e-13);
  }
}

TEST_P(PartsTest, HaveTheGradientsOfTheWholeSequence) {
  const auto dy = Normal<double>({whole.tokens(), whole.dims.inner()}, 7);
  const auto want = ScanBackward<double>(in, dy, whole);
  const auto ends = GatheredEnds();
  auto dends = Zeros<double>(ends.shape);
  std::vector<StateGradients<double>> scans;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    StateInputs inputs = InputsOf(rank);
    inputs.start = Starts(ends, chain, rank);
    scans.push_back(ScanBackward<double>(inputs, OfRank(dy, rank), ours));
    const auto of_rank = StartsBackward(scans.back().start, ends, chain, rank);
    for (size_t i = 0; i < dends.v.size(); ++i) dends.v[i] += of_rank.v[i];
  }
  std::vector<double> dt_bias(4, 0), a_log(4, 0);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    auto& got = scans[size_t(rank)];
    const auto of_ends = EndsBackward<double>(InputsOf(rank), RowsOf(dends, 2 * rank, 2), ours);
    for (size_t i = 0; i < got.xbc.v.size(); ++i) got.xbc.v[i] += of_ends.xbc.v[i];
    for (size_t i = 0; i < got.dt.v.size(); ++i) got.dt.v[i] += of_ends.dt.v[i];
    for (size_t h = 0; h < 4; ++h) {
      dt_bias[h] += got.dt_bias.v[h] + of_ends.dt_bias.v[h];
      a_log[h] += got.a_log.v[h] + of_ends.a_log.v[h];
    }
    ExpectClose(got.xbc.v, OfRank(want.xbc, rank).v, 1e-12);
    ExpectClose(got.dt.v, OfRank(want.dt, rank).v, 1e-11);
  }
  ExpectClose(dt_bias, want.dt_bias.v, 1e-11);
  ExpectClose(a_log, want.a_log.v, 1e-11);
}

// No documents; borders within parts, at their ends and beside these; each token its own document.
INSTANTIATE_TEST_SUITE_P(Documents, PartsTest,
                         ::testing::Values(std::vector<int64_t>{}, std::vector<int64_t>{0, 5},
                                           std::vector<int64_t>{0, 9, 17, 37, 44},
                                           std::vector<int64_t>{0, 26, 27, 28, 53},
                                           EveryToken(54)));

TEST(StateEnds, ThreadsDoNotChangeBits) {
  const StateSize size = Size(2, 4, 2, 16, 16, 200);
  const StateInputs in = MakeStateInputs(size);
  const auto dends = Normal<double>({2, size.dims.state_columns() + 4}, 9);
  EXPECT_EQ(Ends<float>(in, size, 1).v, Ends<float>(in, size, 3).v);
  const auto one = EndsBackward<float>(in, dends, size, 1);
  const auto three = EndsBackward<float>(in, dends, size, 3);
  EXPECT_EQ(one.xbc.v, three.xbc.v);
  EXPECT_EQ(one.dt.v, three.dt.v);
  EXPECT_EQ(one.a_log.v, three.a_log.v);
}

}  // namespace trainyard::testing::state_ends
