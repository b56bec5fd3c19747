// Model FLOPs per token, by the conventions of published performance tables. Multiply and add count
// as two; forward, input gradient and weight gradient are all included.
//
// A published TFLOP/s or MFU means nothing until its convention is known. `exact` comes from the
// recorded program; the others are the formulas that reproduce the tables.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/arch/config.h"
#include "models/program/program.h"

namespace trainyard {

enum class FlopsConvention {
  kExact,          // What the model computes: causal triangle s(s+1)/2, output layer, no recompute.
  kNemo20,         // NeMo 2.0 page (24.07): full attention.
  kAutoModel,      // NeMo AutoModel page: causal, half of full attention.
  kDgxcLlama31,    // DGX Cloud Llama 3.1 (v25.04): full attention; 405b with groups/heads = 1/8.
  kDgxcNemotron4,  // DGX Cloud Nemotron4 (v25.04): full attention, no groups, ffn = 4 hidden.
  kMegatron,       // Megatron-LM: causal, half of full attention.
};

// "exact", "nemo20", "automodel", "dgxc-llama31", "dgxc-nemotron4", "megatron".
absl::string_view Name(FlopsConvention convention);
absl::StatusOr<FlopsConvention> ParseFlopsConvention(absl::string_view name);
std::vector<std::string> FlopsConventionNames();

// Per token.
struct Flops {
  double qkvo = 0;       // Query, key, value and output projections.
  double attention = 0;  // Scores and their product with the values.
  double mlp = 0;        // Of experts: the router, those that a token goes through, shared ones.
  double output = 0;     // Projection to the vocabulary.
  std::map<std::string, double> other = {};  // Of other parts of the model, by their labels.

  double total() const;
};

// `config` must be valid; 1 <= sequence <= kMaxSequence.
Flops FlopsPerToken(const ModelConfig& config, int64_t sequence,
                    FlopsConvention convention = FlopsConvention::kExact);

// What a recorded step of `tokens` tokens computes, by part of the model.
Flops CountFlops(const Program& program, int64_t tokens);

// Model FLOPs utilisation: model FLOPs of the whole job's step, over what all ranks' devices could
// do in the time of the slowest rank. `peak_flops` is the sum of the ranks' peaks per second.
// `seconds` and `peak_flops` must be above 0. Every MFU that Trainyard shows comes from here.
double Mfu(double model_flops, double seconds, double peak_flops);

// Of the global tensors, by recording. Active are those that one token meets: of routed experts, as
// many as it goes through.
struct ParameterCount {
  int64_t total = 0;
  int64_t active = 0;
};
ParameterCount CountParameters(const ModelConfig& config);

}  // namespace trainyard
