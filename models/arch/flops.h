// Model FLOPs per token, counted in the recorded program: with the causal triangle s(s+1)/2 and the
// output layer, without recompute. A multiplication and an addition count as two FLOPs. Forward,
// input gradient and weight gradient are all included. This is the convention "exact" of
// conventions.h, which has the formulas of published tables.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/attention/attention_mask.h"
#include "models/arch/config.h"
#include "models/program/program.h"

namespace trainyard {

// FLOPs per token.
struct Flops {
  double qkvo = 0;       // Query, key, value and output projections.
  double attention = 0;  // Scores and their product with the values.
  double mlp = 0;        // With the router; of experts, only those that a token uses.
  double output = 0;     // Projection to the vocabulary.
  std::map<std::string, double> other = {};  // Other parts of the model, by their labels.

  double total() const;
};

// `config` must be valid; 1 <= sequence <= kMaxSequence.
Flops FlopsPerToken(const ModelConfig& config, int64_t sequence);

// A step of one sequence on one rank, without memory.
Program RecordForCounting(const ModelConfig& config, int64_t sequence);

// Counts the FLOPs of a recorded step of `tokens` tokens, by part of the model.
Flops CountFlops(const Program& program, int64_t tokens);

// What a query-key pair of all attention with this mask costs in a step: of all layers and heads,
// forward and backward.
struct PairFlops {
  AttentionMask mask;
  double flops;
};
// For each mask of a step that is recorded for one rank.
std::vector<PairFlops> FlopsPerPair(const Program& program);

// Model FLOPs utilisation: the model FLOPs of the whole job's step, divided by the FLOPs that all
// ranks' devices could do in the time of the slowest rank. `peak_flops` is the sum of the ranks'
// peaks per second. `seconds` and `peak_flops` must be above 0. Every MFU that Trainyard shows
// comes from this function.
double Mfu(double model_flops, double seconds, double peak_flops);

// The number of elements of the model's global parameters, found by recording the model. `active`
// counts the parameters that one token uses: of the routed experts, only the top_k that are chosen.
struct ParameterCount {
  int64_t total = 0;
  int64_t active = 0;
};
ParameterCount CountParameters(const ModelConfig& config);

}  // namespace trainyard
