// Proves kernels/optimizer/muon.h: each part against its formula, written plainly in f64, and all
// of them together against 20 steps of torch.optim.Muon (tests/golden/make_muon.py).

#include "kernels/optimizer/muon.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::muon {

StepState MuonStep() {
  StepState state{.step = 3, .learning_rate = 0.01};
  state.clip_factor = 0.5;
  return state;
}

template <typename A>
uint32_t MuonWords(const Array<A>& values) {
  uint32_t sum = 0;
  for (const A x : values.v) sum += WordSum(x);
  return sum;
}

template <typename A>
void ExpectMomentum(int64_t n) {
  auto m = Normal<A>({n}, 1), grad = Normal<A>({n}, 2);
  const auto old_m = m, g = grad;
  StepState state = MuonStep();
  Call(MuonMomentumArgs{.m = m, .grad = grad, .momentum = 0.9, .state = &state}, 3);
  std::vector<double> want_m, want;
  for (size_t i = 0; i < m.v.size(); ++i) {
    want_m.push_back(0.9 * double(old_m.v[i]) + (1 - 0.9) * 0.5 * double(g.v[i]));
    want.push_back(0.9 * want_m.back() + (1 - 0.9) * 0.5 * double(g.v[i]));
  }
  const double tolerance = Tolerance(DTypeOf<A>::value, 1);
  ExpectClose(Converted<double>(m).v, want_m, tolerance);
  ExpectClose(Converted<double>(grad).v, want, tolerance);
  EXPECT_EQ(state.read, (WordSums{0, MuonWords(old_m), 0}));
  EXPECT_EQ(state.written, (WordSums{0, MuonWords(m), 0}));
}

TEST(MuonMomentum, MatchesTheFormulaAndSumsTheWordsOfTheMomentum) {
  for (const int64_t n : {1, 9001, 60007}) {
    ExpectMomentum<double>(n);
    ExpectMomentum<float>(n);
  }
}

// The matrix [rows, columns] of the rows of `x`.
struct PlainMatrix {
  int64_t rows, columns;
  std::vector<double> v;

  PlainMatrix Transposed() const {
    PlainMatrix t{columns, rows, std::vector<double>(v.size())};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) t.v[size_t(c * rows + r)] = v[size_t(r * columns + c)];
    }
    return t;
  }
  PlainMatrix operator*(const PlainMatrix& o) const {
    PlainMatrix product{rows, o.columns, std::vector<double>(size_t(rows * o.columns))};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < o.columns; ++c) {
        double& sum = product.v[size_t(r * o.columns + c)];
        for (int64_t k = 0; k < columns; ++k) {
          sum += v[size_t(r * columns + k)] * o.v[size_t(k * o.columns + c)];
        }
      }
    }
    return product;
  }
};

// The iteration as the header prints it.
PlainMatrix PlainNewtonSchulz(const PlainMatrix& of) {
  const bool tall = of.rows > of.columns;
  PlainMatrix x = tall ? of.Transposed() : of;
  double squares = 0;
  for (const double e : x.v) squares += e * e;
  for (double& e : x.v) e /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const PlainMatrix g = x * x.Transposed(), gg = g * g;
    PlainMatrix p = g;
    for (size_t i = 0; i < p.v.size(); ++i) p.v[i] = -4.7750 * g.v[i] + 2.0315 * gg.v[i];
    const PlainMatrix px = p * x;
    for (size_t i = 0; i < x.v.size(); ++i) x.v[i] = 3.4445 * x.v[i] + px.v[i];
  }
  return tall ? x.Transposed() : x;
}

template <typename T>
Array<T> Orthogonalized(Array<T> x, int threads = 1) {
  using A = Accumulate<T>;
  const int64_t k = std::min(x.shape[0], x.shape[1]);
  auto y = Poison<A>(x.shape), square = Poison<A>({k, k});
  auto gram = Poison<T>({k, k});
  Call(NewtonSchulzArgs{.x = x, .y = y, .gram = gram, .square = square}, threads);
  return x;
}

TEST(NewtonSchulz, MatchesTheFormulaForWideTallAndSquareMatrices) {
  for (const Shape shape : {Shape{5, 9}, Shape{9, 5}, Shape{7, 7}, Shape{1, 6}, Shape{64, 40}}) {
    for (const double scale : {1.0, 1e-5, 0.0}) {
      auto x = Normal<double>(shape, 1);
      for (double& e : x.v) e *= scale;
      const PlainMatrix want = PlainNewtonSchulz({shape[0], shape[1], x.v});
      ExpectClose(Orthogonalized(x).v, want.v, 1e-12);
    }
  }
}

// bf16 rounds the gram matrix and x five times; what it is for needs no more.
TEST(NewtonSchulz, BringsSingularValuesNearOneInEveryDType) {
  const Shape shape{48, 80};
  const auto x = Normal<double>(shape, 1);
  const auto exact = PlainNewtonSchulz({48, 80, x.v}).v;
  const auto check = [&](const std::vector<double>& got, double tolerance) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      difference += std::pow(got[i] - exact[i], 2), size += std::pow(exact[i], 2);
    }
    EXPECT_LT(std::sqrt(difference / size), tolerance);
    EXPECT_NEAR(size / 48, 1, 0.3);  // The mean of the squares of 48 singular values.
  };
  check(Converted<double>(Orthogonalized(Converted<float>(x))).v, 1e-5);
  check(Converted<double>(Orthogonalized(Converted<bf16>(x))).v, 0.05);
}

TEST(NewtonSchulz, ThreadsDoNotChangeBits) {
  const auto x = Normal<double>({130, 70}, 1);
  EXPECT_EQ(Orthogonalized(x, 1).v, Orthogonalized(x, 3).v);
}

template <typename A, typename U>
void ExpectPiece(const Shape& piece, int64_t row, int64_t column) {
  const Shape whole{40, 24};
  auto master = Normal<A>(piece, 1);
  const auto before = master;
  const auto x = Normal<U>(whole, 2);
  auto compute = Poison<bf16>(piece);
  StepState state = MuonStep();
  Call(MuonUpdateArgs{.master = master,
                      .x = x,
                      .row = row,
                      .column = column,
                      .weight_decay = 0.3,
                      .state = &state,
                      .compute = compute},
       3);
  std::vector<double> want;
  for (int64_t r = 0; r < piece[0]; ++r) {
    for (int64_t c = 0; c < piece[1]; ++c) {
      const double w = double(before.v[size_t(r * piece[1] + c)]);
      const double o = double(Accumulate<U>(x.v[size_t((row + r) * 24 + column + c)]));
      want.push_back(w - 0.01 * (0.3 * w + 0.2 * std::sqrt(40.0) * o));
    }
  }
  ExpectClose(Converted<double>(master).v, want, Tolerance(DTypeOf<A>::value, 1));
  for (size_t i = 0; i < compute.v.size(); ++i) {
    ASSERT_EQ(compute.v[i].bits, bf16(float(master.v[i])).bits);
  }
  EXPECT_EQ(state.read, (WordSums{MuonWords(before), 0, 0}));
  EXPECT_EQ(state.written, (WordSums{MuonWords(master), 0, 0}));
}

TEST(MuonUpdate, UpdatesAPieceByItsPlaceInTheMatrix) {
  for (const auto& [piece, row, column] :
       {std::tuple(Shape{40, 24}, 0, 0), std::tuple(Shape{3, 24}, 37, 0),
        std::tuple(Shape{40, 8}, 0, 16), std::tuple(Shape{1, 5}, 7, 19)}) {
    ExpectPiece<double, double>(piece, row, column);
    ExpectPiece<float, float>(piece, row, column);
    ExpectPiece<float, bf16>(piece, row, column);
  }
}

TEST(Muon, ChangesNothingAfterAStepThatIsNotFinite) {
  StepState state = MuonStep();
  state.finite = 0;
  auto w = Normal<float>({4, 6}, 1), m = Normal<float>({4, 6}, 2);
  const auto before = w, m_before = m;
  auto grad = Poison<float>({4, 6});
  Call(MuonMomentumArgs{.m = m, .grad = grad, .momentum = 0.9, .state = &state});
  Call(MuonUpdateArgs{
      .master = w, .x = grad, .row = 0, .column = 0, .weight_decay = 0.1, .state = &state});
  EXPECT_EQ(w.v, before.v);
  EXPECT_EQ(m.v, m_before.v);
  EXPECT_EQ(state.read, WordSums());
}

// 20 steps of torch.optim.Muon in f64, for matrices of several shapes.
TEST(Muon, TwentyStepsEqualThoseOfPyTorch) {
  std::ifstream file(std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/muon.json");
  ASSERT_TRUE(file.good());
  const auto golden = nlohmann::json::parse(file);
  const auto number = [&](const char* name) { return golden.at(name).get<double>(); };
  for (const auto& matrix : golden.at("matrices")) {
    const auto rows = matrix.at("rows").get<int64_t>();
    const auto columns = matrix.at("columns").get<int64_t>();
    SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
    Array<double> w = Zeros<double>({rows, columns}), m = w, grad = w;
    const auto at = [](double i, double step) { return std::sin(1 + 0.7 * i + 1.3 * step); };
    for (size_t i = 0; i < w.v.size(); ++i) w.v[i] = at(double(i), 0);
    for (int step = 1; step <= 20; ++step) {
      for (size_t i = 0; i < w.v.size(); ++i) grad.v[i] = at(double(i * i), step) + 0.1 * w.v[i];
      StepState state{.step = step, .learning_rate = number("learning_rate")};
      Call(MuonMomentumArgs{.m = m, .grad = grad, .momentum = number("momentum"), .state = &state});
      const auto x = Orthogonalized(grad);
      Call(MuonUpdateArgs{.master = w,
                          .x = x,
                          .row = 0,
                          .column = 0,
                          .weight_decay = number("weight_decay"),
                          .state = &state});
    }
    ExpectClose(w.v, matrix.at("weights").get<std::vector<double>>(), 1e-9);
    ExpectClose(m.v, matrix.at("momentum").get<std::vector<double>>(), 1e-9);
  }
}

TEST(MuonDeathTest, NamesTheArgumentThatIsWrong) {
  StepState state = MuonStep();
  auto w = Normal<float>({4, 6}, 1), x = Normal<float>({4, 6}, 2);
  MuonUpdateArgs args{
      .master = w, .x = x, .row = 1, .column = 0, .weight_decay = 0.1, .state = &state};
  EXPECT_DEATH(Call(args), "muon piece: \\[4, 6\\] at 1, 0 of \\[4, 6\\]");
  EXPECT_DEATH(Call(MuonMomentumArgs{.m = w, .grad = x, .momentum = 1, .state = &state}),
               "muon momentum: 1");
}

}  // namespace trainyard::testing::muon
