// Recipes with products in 8 bits, as rows of the table of precisions will have them, but all else
// in f64. So layouts can be compared as exactly as in f64: numbers that differ by the order of sums
// alone are nearly always rounded alike. And the model and batch with which layouts are compared.

#pragma once

#include <ostream>
#include <vector>

#include "models/program/precision.h"
#include "tests/models/tiny.h"
#include "tests/train/step/layouts.h"

namespace trainyard::testing {

struct ScaledRecipe {
  const char* name;
  Precision precision;
  friend void PrintTo(const ScaledRecipe& recipe, std::ostream* out) { *out << recipe.name; }
};

// Blocks are smaller than those of a GPU, so that tiny matrices have several.
inline const std::vector<ScaledRecipe>& ScaledRecipes() {
  constexpr DType kE4M3 = DType::kE4M3, kE5M2 = DType::kE5M2;
  constexpr Scaling kTensor{}, kRow{.kept = 1}, kLine{.kept = 1, .summed = 4};
  constexpr Scaling kSquare{.kept = 4, .summed = 4}, kDelayed{.history = 3};
  const Precision f64 = Precision::F64();
  static const std::vector<ScaledRecipe> recipes = {
      {"current", f64.WithLayers({kE4M3, kTensor}, {kE4M3, kTensor}, {kE5M2, kTensor})},
      {"delayed", f64.WithLayers({kE4M3, kDelayed}, {kE4M3, kDelayed}, {kE5M2, kDelayed})
                      .WithExpertsAsLayers()},
      {"blockwise", f64.WithLayers({kE4M3, kLine}, {kE4M3, kSquare}, {kE4M3, kLine})},
      {"rowwise", f64.WithLayers({kE4M3, kRow}, {kE4M3, kRow}, {kE5M2, kRow}).WithExpertsByRows()}};
  return recipes;
}
// What divides for four ranks of any axis, in whole blocks of scales: a rank's rows of the weights
// of queries, keys and values, its columns, and its tokens.
inline LayoutCase ScaledCase(const ScaledRecipe& recipe, const ParallelismConfig& parallelism,
                             int64_t data) {
  LayoutCase c = MakeLayoutCase("llama", parallelism, data);
  DecoderConfig& decoder = AsDecoder(c.model);
  decoder.hidden = 16;
  decoder.heads = decoder.kv_heads = 4;
  decoder.head_dim = 4;
  decoder.ffn = 16;
  decoder.vocab = 20;
  decoder.max_seq = c.job.batch.sequence = 32;
  c.precision = &recipe.precision;
  return HeldUp(c);
}

inline const Precision& CurrentScaling() { return ScaledRecipes()[0].precision; }
inline const Precision& DelayedScaling() { return ScaledRecipes()[1].precision; }
inline const Precision& RowScaling() { return ScaledRecipes()[3].precision; }

}  // namespace trainyard::testing
