// The catalogue of recorded ops: each function appends an instance and returns its result. Formulas
// are in kernels/NAME.h, classes in NAME.cc beside this file.
//
// Letters: T tokens, B samples, D width, S sequence, V vocabulary, a heads, g key/value heads, d
// head dim.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/rope.h"
#include "kernels/router.h"
#include "models/program/parameter.h"
#include "models/program/recorder.h"

namespace trainyard::ops {

// [T, D] + [T, D].
Value Add(Recorder& recorder, Value a, Value b);
// Makes `instance`, whose first input is the sum that `add` writes, compute that sum itself. `op`
// is what then runs: its last input is the addend, and its last output is the sum.
Instance TakingSum(const Instance& add, const Instance& instance, std::shared_ptr<const Op> op);
// The reverse: makes `instance` read the sum that another instance wrote.
Instance ReadingSum(const Instance& instance, std::shared_ptr<const Op> op);

// x [T, K] with weight [N, K] and bias [N] (or none): [T, N]. Logits are the head's or the
// router's.
Value Linear(Recorder& recorder, Value x, Value weight, Value bias = {});
Value Logits(Recorder& recorder, ProductKind kind, Value x, Value weight, Value bias = {});
struct WeightGradientOf {
  Value dy;  // [T, N]
  Value x;   // [T, K]
  Value weight;
};
// Adds dy^T x to the gradient of the weight. Of list kBackwardWeight. Nothing for a frozen weight.
void WeightGradient(Recorder& recorder, ProductKind kind, const WeightGradientOf& of);

// Matrices of T rows each, side by side: [T, sum of their columns].
Value ConcatColumns(Recorder& recorder, const std::vector<Value>& parts);

// x [T, N] + bias [N].
Value AddBias(Recorder& recorder, Value x, Value bias);

Value RmsNorm(Recorder& recorder, Value x, Value gain, double eps);
Value LayerNorm(Recorder& recorder, Value x, Value gain, Value bias, double eps);

// Rows of table [V, D] by tokens i32 [T]: [T, D]. Of a table divided over the tensor ranks: zero
// where the row is another rank's.
Value Embedding(Recorder& recorder, Value table, Value tokens);
// The positions of this rank's rows, i32, where the rows of `tokens` are divided over the tensor
// ranks.
Value Positions(Recorder& recorder, Value tokens);

struct Heads {
  int64_t heads;     // On this rank.
  int64_t kv_heads;  // On this rank.
  int64_t head_dim;
  int64_t sequence;            // Rows of one on this rank.
  int64_t value_head_dim = 0;  // e: of value heads; 0: head_dim.
  int64_t value_dim() const { return value_head_dim == 0 ? head_dim : value_head_dim; }
  // Columns of a packed projection: query, key and value heads in this order.
  int64_t query_columns() const { return heads * head_dim; }
  int64_t key_columns() const { return kv_heads * head_dim; }
  int64_t value_columns() const { return kv_heads * value_dim(); }
  int64_t columns() const { return query_columns() + key_columns() + value_columns(); }
};
std::string ToString(const Heads& heads);

struct HeadGains {
  Value query;  // [d]
  Value key;    // [d]
  double eps;
};
// RMSNorm of each query and key head of qkv [T, (a+2g)d].
Value HeadNorm(Recorder& recorder, Value qkv, const HeadGains& gains, const Heads& heads);

struct RopeTable {
  double base;
  double factor = 0;  // 0: no scaling.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_seq = 8192;
  YarnRopeScaling yarn = {};  // Not beside a factor.
};
// Rotates the query and key heads of qkv [T, (a+2g)d]; the table is shared by all uses.
Value Rope(Recorder& recorder, Value qkv, const Heads& heads, const RopeTable& table);

using trainyard::AttentionMask;

// Of rows that several documents share, i32 with one element for each of this rank's rows: the
// positions in the sequence where the row's document begins, and where it ends (one past its last
// token). Documents follow one another. Both or, where the mask is causal, begins alone; none: a
// sequence is one document.
struct DocumentBounds {
  Value begins = {};
  Value ends = {};
};
// What attention is beside its heads. The default: causal, scaled by 1/sqrt(d), nothing else.
struct AttentionForm {
  AttentionMask mask = {};
  double soft_cap = 0;               // Scores become soft_cap tanh(score / soft_cap); 0: none.
  std::optional<double> scale = {};  // Absent: 1/sqrt(d).
  Value sinks = {};  // [a] on this rank: a logit of each query head without a value.
  DocumentBounds documents = {};
};

// qkv [T, a d + g d + g e] to [T, a e]. Over all rows of the sequences, those on other context
// ranks too. FLOPs count the pairs that the mask lets through; where documents share sequences,
// which pairs these are is not known, and they count as if each sequence were one.
Value Attention(Recorder& recorder, Value qkv, const Heads& heads, const AttentionForm& form = {});
// Attention where there are other context ranks.
Value ContextAttention(Recorder& recorder, Value qkv, const Heads& heads,
                       const AttentionForm& form = {});

Value SwiGlu(Recorder& recorder, Value x);  // [T, 2F] to [T, F].
Value Gelu(Recorder& recorder, Value x);
Value Silu(Recorder& recorder, Value x);

// --- Conditions of samples. [B, D] alike on all tensor and context ranks of a sample.

// Sinusoids [B, width] of times i32 [B].
Value TimeEmbedding(Recorder& recorder, Value time, int64_t width);
// The columns of x [B, n D] in `parts` = n equal parts, for ops that read a sample's row for each
// of the sample's tokens. Their gradients are summed over the ranks that share out the tokens.
// Every part must be read.
std::vector<Value> SpreadSamples(Recorder& recorder, Value x, int64_t parts);
// LayerNorm of x [T, D] without gain and bias, then times 1 + scale plus shift, which are parts
// [B, D] of SpreadSamples.
Value AdaptiveNorm(Recorder& recorder, Value x, Value shift, Value scale, double eps);
// x + gate h: x and h [T, D], gate a part [B, D] of SpreadSamples.
Value GatedAdd(Recorder& recorder, Value x, Value gate, Value h);

// This tensor rank's rows of an input by token: of [n T, D], [T, D].
Value OwnRows(Recorder& recorder, Value x);
// x [T, D] plus fixed sinusoids of the places of its tokens in a grid of so many columns.
Value AddGridPositions(Recorder& recorder, Value x, int64_t columns);
// Adds the mean square of x - target, both [T, P], to StepState; a root of the backward pass.
void MeanSquare(Recorder& recorder, Value x, Value target);

struct Routing {
  Value experts;  // [T, K] i32: of E, those that each token goes to.
  Value weights;  // [T, K] dtype of statistics: what their outputs count.
};
// By logits [T, E], dtype of statistics, and a bias [E] of the choice (or none), whose "gradient"
// is how much more often than the mean each expert is chosen.
Routing Router(Recorder& recorder, Value logits, Value bias, const RouterOptions& options);

struct LoadBalanceOptions {
  RouterScoring scoring;
  double coefficient;
};
// Adds the loss of uneven choices to StepState.auxiliary_loss; a root of the backward pass. The
// choices are those of the micro-batch on all ranks over which its tokens are divided.
void LoadBalance(Recorder& recorder, Value logits, Value experts,
                 const LoadBalanceOptions& options);

struct ExpertMlpInputs {
  Value x;        // [T, D]
  Value experts;  // [T, K] i32: which of E each token chose.
  Value weights;  // [T, K] dtype of statistics: what they count.
  Value gate_up;  // [G, 2F, D]: of this rank's G of the experts, gate first.
  Value down;     // [G, D, F]
  // Both or none: what is added to the products with the two.
  Value gate_up_bias = {};  // [G, 2F]
  Value down_bias = {};     // [G, D]
  double swiglu_limit = 0;  // As ScaledSwiGluForwardArgs has it.
};
// The weighted sum of the outputs of each token's experts, wherever on the mesh's `expert_axes`
// they are: [T, D].
Value ExpertMlp(Recorder& recorder, const ExpertMlpInputs& inputs);

// Adds the loss of logits x weight^T against targets to StepState; a root of the backward pass.
// Where `axes` have n ranks, of rows x [T, D] of each and their weights' [V/n, D] one after
// another; targets i32 [n T] of all. The logits are never there at once.
void LinearCrossEntropy(Recorder& recorder, Value x, Value weight, Value targets, AxisSet axes);

// Column sums of dy [T, N], into the gradient of a bias. Nothing for a frozen one.
void BiasGradient(Recorder& recorder, Value dy, Value bias);

// --- Fused ops. Each function returns the one instance that does the work of two, of which the
// second reads the one output of the first as its first input. The table in passes/fuse.cc says
// which pairs of ops these are.

// The sum is the last output.
Instance AddRmsNorm(const Instance& add, const Instance& norm);
Instance AddLayerNorm(const Instance& add, const Instance& norm);
// The product is the second output.
Instance MatMulGelu(const Instance& product, const Instance& gelu);
// The gradient of GELU's output is not written.
Instance MatMulGeluBackward(const Instance& input_gradient, const Instance& gelu_backward);

// --- Over the ranks that differ along `axes`, on whole rows; x itself where that is one rank.

// The ranks' x [T, D], one after another: [n T, D].
Value AllGather(Recorder& recorder, Value x, AxisSet axes);
// Sums x [n T, D] over the ranks and leaves each its n-th part: [T, D].
Value ReduceScatter(Recorder& recorder, Value x, AxisSet axes);

// Products with a gathered operand or a scattered result, piece by piece while pieces travel. Their
// backward passes gather again, so that nothing gathered is kept.

// Linear(AllGather(x)): x [T, K] of each of n ranks, weight [N, K]: [n T, N].
Value GatherLinear(Recorder& recorder, Value x, Value weight, Value bias, AxisSet axes);
// The head's Logits(AllGather(x)).
Value GatherLogits(Recorder& recorder, Value x, Value weight, AxisSet axes);
// ReduceScatter(Linear(x)): x [n T, K], weight [N, K]: [T, N]. Sums in rank order.
Value LinearScatter(Recorder& recorder, Value x, Value weight, AxisSet axes);

// --- On flat buffers and StepState; recorded by the passes.

// List kInit: the initial values of one box, which are rounded to its dtype where it is frozen, and
// zero for a buffer.
void InitializeBox(Recorder& recorder, const ParameterBox& box);
void FillFlat(Recorder& recorder, FlatBuffer buffer, const FlatRange& range, double value);
// List kPrepare: the compute copy of the master weights.
void CastToCompute(Recorder& recorder, const FlatRange& shard, const FlatRange& own);

// Lists kPrepare and kOptimizer: the compute stream waits for the other one.
void WaitForCommunication(Recorder& recorder, List list);
// List kOptimizer.
void ReduceTied(Recorder& recorder, const FlatRange& gradients);
void SumSquares(Recorder& recorder, const FlatRange& gradients);
void ReduceScalars(Recorder& recorder, AxisSet axes);  // Losses and squared gradient norm.
void Clip(Recorder& recorder);
struct AdamWRange {
  FlatRange flat;   // Of all parameters.
  FlatRange shard;  // The same elements in kMaster and the moments.
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  bool writes_compute;  // A compute copy exists.
};
void AdamW(Recorder& recorder, const AdamWRange& range);
struct BalanceBiasRange {
  FlatRange flat;  // As above.
  FlatRange shard;
  double rate;
  bool writes_compute;
};
void BalanceBias(Recorder& recorder, const BalanceBiasRange& range);
// The compute copies of a bucket from the ranks that own them.
Instance GatherBucket(List list, Stream stream, const Bucket& bucket);

// Instances of the communication stream; the bucket pass places them. In the last micro-batch only,
// or of windowed buckets in each.
Instance ReduceGradients(const Bucket& bucket, const FlatRange& gradients, AxisSet axes);
Instance ReduceBucket(const Program& program, const Bucket& bucket);

// --- ZeRO FULL; recorded by the passes. See block_windows.h.

// List kGather, on the communication stream.
Instance GatherWindow(const Bucket& bucket);
// On the compute stream, before the first instance of the list that reads the block's weights.
Instance Fetch(List list, int block, int ahead);
// Adds ranges of kGradientWindow to kGradient; of a step's first micro-batch, copies them. On the
// communication stream.
Instance AddToShard(List list, std::vector<FlatRange> ranges);
void ForgetBlocks(Recorder& recorder, List list);

}  // namespace trainyard::ops
