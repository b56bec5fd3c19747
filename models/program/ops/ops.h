// The catalogue of recorded ops. Each function appends an instance and returns its result. The
// formulas are in kernels/SUBJECT/NAME.h, and the classes in NAME.cc beside this file.
//
// Letters: T tokens, B samples, D width, S sequence, V vocabulary, a heads, g key/value heads, d
// head dim.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/rope.h"
#include "kernels/device/nf4_operand.h"
#include "kernels/elementwise/swiglu.h"
#include "kernels/experts/load_balance.h"
#include "kernels/experts/router.h"
#include "kernels/loss/preference.h"
#include "kernels/state_space/state_scan.h"
#include "models/program/parameter.h"
#include "models/program/recorder.h"

namespace trainyard::ops {

// Returns a + b; both are [T, D].
Value Add(Recorder& recorder, Value a, Value b);
// Makes `instance`, whose first input is the sum that `add` writes, compute the sum itself. `op` is
// the new op of the instance. Its last input is the addend, and its last output is the sum.
Instance TakingSum(const Instance& add, const Instance& instance, std::shared_ptr<const Op> op);
// The reverse: makes `instance` read the sum that another instance wrote.
Instance ReadingSum(const Instance& instance, std::shared_ptr<const Op> op);

// The weight of a linear layer, [N, K], as products read it.
struct LinearWeight {
  LinearWeight() = default;
  LinearWeight(Value of_numbers) : value(of_numbers) {}  // NOLINT: a weight is mostly one value.
  Value value;                                           // Its numbers; in NF4, its codes.
  // In NF4.
  Value scales, groups;
  std::shared_ptr<const std::vector<Nf4Run>> runs;  // Null: not in NF4.
};
// [N, K].
Shape ShapeOf(const Program& program, const LinearWeight& weight);

// Returns one matrix of all `weights`, whose rows follow one another (Recorder::Weights). All or
// none of them are in NF4 (Recorder::IsInNf4). Weights of which the ranks would divide a block of
// NF4 are added to the program's divided_blocks.
LinearWeight Weight(Recorder& recorder, const std::vector<ParameterSpec>& weights);

// Returns x weight^T + bias, [T, N], for x [T, K], weight [N, K] and bias [N] (may be invalid).
// Without a kind: of the recorder's layer_kind().
Value Linear(Recorder& recorder, Value x, const LinearWeight& weight, Value bias = {});
Value Linear(Recorder& recorder, ProductKind kind, Value x, const LinearWeight& weight,
             Value bias = {});
// Returns y plus the thin products of several projections, whose columns y [T, sum of N] has one
// after another. Each multiplies its R columns of narrow [T, number of projections times R] by its
// matrix up [N, R]. Adds them where y lies, so that nothing of y's size is read or written besides
// y itself.
Value AddThinProducts(Recorder& recorder, Value y, Value narrow, const std::vector<Value>& up);
struct WeightGradientOf {
  Value dy;  // [T, N]
  Value x;   // [T, K]
  Value weight;
};
// Adds dy^T x to the gradient of the weight, in list kBackwardWeight. Does nothing for a frozen
// weight.
void WeightGradient(Recorder& recorder, ProductKind kind, const WeightGradientOf& of);

// Adds this micro-batch's greatest values to their histories. RecordBackward calls this last.
void RecordHistories(Recorder& recorder);

// The gradients of a linear layer. Returns dy weight, the gradient of x, in list kBackwardInput; an
// invalid value if x has no gradient. Records the gradients of the weight and of the bias.
struct LinearGradientsOf {
  Value dy;  // [T, N]
  Value x;   // [T, K]
  LinearWeight weight;
  Value bias;  // May be invalid.
};
Value LinearGradients(Recorder& recorder, ProductKind kind, const LinearGradientsOf& of);

// Returns factor x.
Value Scale(Recorder& recorder, Value x, double factor);

// Joins matrices of T rows side by side: [T, sum of their columns].
Value ConcatColumns(Recorder& recorder, const std::vector<Value>& parts);
// The reverse: parts of these widths, which together are the columns of x. Every part must be read.
std::vector<Value> SplitColumns(Recorder& recorder, Value x, const std::vector<int64_t>& widths);

// Returns x [T, N] + bias [N].
Value AddBias(Recorder& recorder, Value x, Value bias);

// A weight [N, K] with its adapters (layers/low_rank.h).
struct AdaptedWeight {
  LinearWeight weight;
  Value down;             // [n R, K]: a for each of n projections, whose rows the weight has.
  std::vector<Value> up;  // For each projection b [its rows, R].
  Value offset;           // [N]: what is added to the norms of the weight's rows.
};
// Multiplies each column of z [T, N] by (|w| + offset) / |w + scale b a|, for the norms of its row
// of the weight (kernels/norms/magnitude.h). The ranks along `axes` have other columns of the
// weight.
Value Magnitude(Recorder& recorder, Value z, const AdaptedWeight& of, double scale, AxisSet axes);

struct NormOptions {
  double eps;
  double gain_offset = 0;  // Added to gains; 1 if they are stored less 1.
};
std::string ToString(const NormOptions& options);
Value RmsNorm(Recorder& recorder, Value x, Value gain, const NormOptions& options);
Value LayerNorm(Recorder& recorder, Value x, Value gain, Value bias, const NormOptions& options);

// Rows of table [V, D] for tokens i32 [T]: [T, D]. If the table is divided over the tensor ranks, a
// row that another rank holds is zero. Rows are multiplied by `scale`.
Value Embedding(Recorder& recorder, Value table, Value tokens, double scale = 1,
                int64_t padding = -1);
// The positions, i32, of this rank's rows, if the tensor ranks divide the rows of `tokens`.
Value Positions(Recorder& recorder, Value tokens);
// The same of a program with a cache (RecordOptions::cache), which the host writes.
Value CachePositions(Recorder& recorder);
// The position of each token in its document: i32 [T]. Invalid if the data have no documents that
// must not see each other.
Value DocumentPositions(Recorder& recorder);

struct Heads {
  int64_t heads;     // On this rank.
  int64_t kv_heads;  // On this rank.
  int64_t head_dim;
  int64_t sequence;            // Rows of one sequence on this rank.
  int64_t value_head_dim = 0;  // e, the width of value heads; 0: head_dim.
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
  NormOptions options;
};
// Applies RMSNorm to each query and key head of qkv [T, (a+2g)d].
Value HeadNorm(Recorder& recorder, Value qkv, const HeadGains& gains, const Heads& heads);

struct RopeTable {
  double base;
  double factor = 0;  // 0: no scaling.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_seq = 8192;
  YarnRopeScaling yarn = {};  // Not together with a factor.
  int64_t dims = 0;           // Rotated dims of a head, an even number: the first ones; 0: all.
};
// cos and sin [S, width / 2] of the rotary angles. All uses of a table share its values. In a
// program with a cache S is the number of new tokens, which each have a position of their own.
struct Rotation {
  Value cos;
  Value sin;
};
Rotation RopeRotation(Recorder& recorder, int64_t sequence, int64_t width, const RopeTable& table);
// The rotation of heads by a table.
Rotation RopeRotation(Recorder& recorder, const Heads& heads, const RopeTable& table);
// Rotates the query and key heads of qkv [T, (a+2g)d].
Value Rope(Recorder& recorder, Value qkv, const Heads& heads, const Rotation& rotation);

// The operands of multi-head latent attention's heads (kernels/attention/latent_heads.h). r is the
// width with rotary positions, of the head dim d; e the value width.
struct LatentParts {
  Value q;       // [T, a d]
  Value kv;      // [T, a (d - r + e)]
  Value k_rope;  // [T, r]
};
// Packs and rotates the heads: [T, 2 a d + a e], as Attention wants them.
Value LatentHeads(Recorder& recorder, const LatentParts& parts, const Heads& heads,
                  const RopeTable& table);

using trainyard::AttentionMask;

// The documents of rows that several documents share. Each value is i32 with one element for each
// of this rank's rows: the position in the sequence at which the row's document begins, and the
// position at which it ends (one past its last token). Documents follow one another. Give both, or
// `begins` alone if the mask is causal, or none if each sequence is one document.
struct DocumentBounds {
  Value begins = {};
  Value ends = {};
};
// The choice of dropout in the current block. `what` says which of the block's values it is for.
DropoutPlace DropoutAt(const Recorder& recorder, double probability, absl::string_view what);
// Drops elements of this rank's rows x [T, D], in a training program
// (kernels/elementwise/dropout.h). With probability 0 returns x.
Value Dropout(Recorder& recorder, Value x, double probability, absl::string_view what);
// The same for x [n T, D / n], which has the rows of all n tensor ranks and this rank's columns.
Value DropoutOfColumns(Recorder& recorder, Value x, double probability, absl::string_view what);

// The properties of attention besides its heads. The default is causal, scaled by 1/sqrt(d), and
// nothing else.
struct AttentionForm {
  AttentionMask mask = {};
  double soft_cap = 0;               // Scores become soft_cap tanh(score / soft_cap); 0: none.
  std::optional<double> scale = {};  // Absent: 1/sqrt(d).
  Value sinks = {};  // [a] on this rank: for each query head, a logit without a value.
  DocumentBounds documents = {};
  double dropout = 0;  // Probability that a training program drops a query's weight of a key.
};

// qkv [T, a d + g d + g e] to [T, a e]. Attention sees all rows of a sequence, also those on other
// context ranks. FLOPs count the pairs that the mask allows. If documents share sequences, the
// pairs are not known when the program is recorded, and FLOPs count each sequence as one document.
Value Attention(Recorder& recorder, Value qkv, const Heads& heads, const AttentionForm& form = {});
// Attention in a program with a cache: of several new tokens of one text, or of one of each text.
Value CachedAttention(Recorder& recorder, Value qkv, const Heads& heads, const AttentionForm& form);
// Attention with more than one context rank.
Value ContextAttention(Recorder& recorder, Value qkv, const Heads& heads,
                       const AttentionForm& form = {});

// [T, 2F] to [T, F].
Value SwiGlu(Recorder& recorder, Value x, GateActivation gate = GateActivation::kSilu);
Value Gelu(Recorder& recorder, Value x);
Value Silu(Recorder& recorder, Value x);
Value SquaredRelu(Recorder& recorder, Value x);

// --- State spaces (layers/mamba.h).
// `sequence` counts the rows of a part of a sequence. A rank has one part of each sequence, or two
// parts if context ranks divide sequences (RowsOfPart).

using trainyard::StateDims;

int64_t RowsOfPart(const Recorder& recorder);
// silu(conv(x) + bias), [T, C], for weight [C, 1, K] and bias [C]: causal, each channel by itself.
// The rows before a part are those of the part that precedes it in the sequence, which may be on
// another context rank. With DocumentPositions, tokens read rows of their document alone.
Value CausalConv(Recorder& recorder, Value x, Value weight, Value bias, Value positions);
struct StateScanInputs {
  Value xbc;  // [T, H P + 2 G N]
  Value dt;   // [T, H]
  // [H] each.
  Value dt_bias;
  Value a_log;
  Value d;
  Value positions =
      {};  // DocumentPositions, with which each document begins with a state of zeros.
};
// The state space of kernels/state_space/state_scan.h: [T, H P]. The state goes on from part to
// part of a sequence, through all context ranks. FLOPs are 2 H P N for a token, and twice this in
// backward: one product with the state, as published tables of FLOPs count it (a convention; the
// recurrence has two products, and the kernels have more).
Value StateScan(Recorder& recorder, const StateScanInputs& inputs, const StateDims& dims);
struct GatedNormInputs {
  Value x;     // [T, D]
  Value z;     // [T, D]
  Value gain;  // [D]
};
// RMSNorm of x silu(z) in `groups` groups of columns: [T, D].
Value GatedNorm(Recorder& recorder, const GatedNormInputs& inputs, int64_t groups, double eps);

// --- Conditions of samples.
// A condition [B, D] is the same on all tensor and context ranks of a sample.

// Returns sinusoids [B, width] of times i32 [B].
Value TimeEmbedding(Recorder& recorder, Value time, int64_t width);
// Divides the columns of x [B, n D] into `parts` = n equal parts [B, D], for ops that read the row
// of a sample for each token of the sample. The backward pass sums the gradients of the parts over
// the ranks that divide the tokens. Every part must be read.
std::vector<Value> SpreadSamples(Recorder& recorder, Value x, int64_t parts);
// Applies LayerNorm without gain and bias to x [T, D], multiplies the result by 1 + scale and adds
// shift. `shift` and `scale` are parts [B, D] that SpreadSamples returned.
Value AdaptiveNorm(Recorder& recorder, Value x, Value shift, Value scale, double eps);
// Returns x + gate h. x and h are [T, D], and gate is a part [B, D] that SpreadSamples returned.
Value GatedAdd(Recorder& recorder, Value x, Value gate, Value h);

// Returns this tensor rank's rows [T, D] of an input by token [n T, D].
Value OwnRows(Recorder& recorder, Value x);
// Returns x [T, D] plus fixed sinusoids of the places of the tokens in a grid of `columns` columns.
Value AddGridPositions(Recorder& recorder, Value x, int64_t columns);
// Adds the mean square of x - target, both [T, P], to StepState. The op is a root of the backward
// pass.
void MeanSquare(Recorder& recorder, Value x, Value target);

struct Routing {
  Value experts;  // [T, K] i32: the experts, of E, that each token chose.
  Value weights;  // [T, K] dtype of statistics: the weights of their outputs.
};
// Chooses experts by logits [T, E], dtype of statistics, and a bias [E] on the choice (may be
// invalid). The bias's "gradient" is how much more often than the mean each expert is chosen.
Routing Router(Recorder& recorder, Value logits, Value bias, const RouterOptions& options);

struct LoadBalanceOptions {
  RouterScoring scoring;
  double coefficient;
  AuxLossScope scope = AuxLossScope::kBatch;
};
// Adds the loss for uneven choices to StepState.auxiliary_loss; a root of the backward pass. Counts
// the choices of each set of tokens on all ranks over which the tokens of the set are divided.
void LoadBalance(Recorder& recorder, Value logits, Value experts,
                 const LoadBalanceOptions& options);

// The low-rank adapter of one of the experts' products, x to y (models/layers/low_rank.h). K inputs
// and N outputs of the product. Both values are invalid if there is none.
struct ExpertAdapter {
  Value down = {};  // [G, rank, K]
  Value up = {};    // [G, N, rank]
  bool valid() const { return down.valid(); }
};

// The weights of one of the experts' products: N outputs, K inputs of this rank's G experts.
struct ExpertWeight {
  ExpertWeight() = default;
  ExpertWeight(Value of_numbers) : value(of_numbers) {}  // NOLINT: mostly one value.
  Value value;  // Their numbers, [G, N, K]; in NF4 their codes, [G, N, K / 2].
  // In NF4: each matrix of an expert is a tensor of its own, which has its own groups and mean.
  Value scales = {};  // [G, N, K / 64]
  Value groups = {};  // [G, for each matrix the groups and the mean]
  bool in_nf4() const { return scales.valid(); }
};
// [G, N, K].
Shape ShapeOf(const Program& program, const ExpertWeight& weight);

// Returns the weights of experts, which are stacked, as Weight does those of linear layers.
ExpertWeight WeightOfExperts(Recorder& recorder, const std::vector<ParameterSpec>& weights);

struct ExpertMlpInputs {
  Value x;               // [T, D]
  Value experts;         // [T, K] i32: the experts, of E, that each token chose.
  Value weights;         // [T, K] dtype of statistics: the weights of their outputs.
  ExpertWeight gate_up;  // [G, 2F, D]: gate first. [G, F, D] without gates.
  ExpertWeight down;     // [G, D, F]; in NF4 if gate_up is.
  bool gated = true;     // An expert computes SwiGLU; otherwise squared ReLU.
  // Biases of the two products. Give both or none.
  Value gate_up_bias = {};  // [G, 2F], or [G, F]
  Value down_bias = {};     // [G, D]
  double swiglu_limit = 0;  // As in ScaledSwiGluForwardArgs.
  // Adapters of the first product, and of the second one.
  ExpertAdapter first_adapter = {}, second_adapter = {};
  double adapter_scale = 1;  // What the adapters add is multiplied by it.
};
// Returns the weighted sum of the outputs of each token's experts: [T, D]. The experts may be on
// any rank along the mesh's `expert_axes`.
Value ExpertMlp(Recorder& recorder, const ExpertMlpInputs& inputs);

// Adds the loss of logits = x weight^T against targets to StepState; a root of the backward pass.
// With n ranks along `axes`, each rank has x [T, D], weight [V/n, D] and the targets i32 [n T] of
// all ranks; the logits are those of all ranks' rows, one rank after another, over the whole
// vocabulary. They are never in memory as a whole.
void LinearCrossEntropy(Recorder& recorder, Value x, Value weight, Value targets, AxisSet axes);

// Returns the log-probability of each target, [n T] on each rank, for losses of several targets
// together; 0 for targets that are not counted. The arguments are as in LinearCrossEntropy.
Value LinearLogProbs(Recorder& recorder, Value x, Value weight, Value targets, AxisSet axes);

// Adds the loss of pairs of answers (kernels/loss/preference.h) to StepState; a root of the
// backward pass. All are [T]: the rows of the micro-batch that this context rank has, the same on
// all tensor ranks. Keeps the sums of the sides of all samples as output kPreferenceSums: f64
// [samples, PreferenceSides(sequence), 3], which the context ranks have added.
struct PreferenceOperands {
  Value log_probs, targets, sides, reference;
};
void PreferenceLoss(Recorder& recorder, const PreferenceOperands& of,
                    const PreferenceOptions& options);
inline constexpr char kPreferenceSums[] = "preference_sums";
// The most sides that a sample can have: each takes a place. Even.
constexpr int64_t PreferenceSides(int64_t sequence) { return (sequence + 1) / 2 * 2; }

// Adds the column sums of dy [T, N] to the gradient of a bias. Does nothing for a frozen bias.
void BiasGradient(Recorder& recorder, Value dy, Value bias);

// --- Fused ops.
// Each function returns one instance that does the work of two. An input of the second instance
// (the first one, if nothing else is said) is the only output of the first one. The table in
// passes/fuse.cc lists the pairs of ops.

// The sum is the last output.
Instance AddRmsNorm(const Instance& add, const Instance& norm);
Instance AddLayerNorm(const Instance& add, const Instance& norm);
// The product is the second output.
Instance MatMulGelu(const Instance& product, const Instance& gelu);
// The gradient of GELU's output is not written.
Instance MatMulGeluBackward(const Instance& input_gradient, const Instance& gelu_backward);
// The input's gradient is added to the other addend. Reads that in place of writing the gradient.
Instance MatMulAdd(const Instance& input_gradient, const Instance& add);
// The rotation must be of whole heads. What is only normalised is not written.
Instance HeadNormRope(const Instance& norm, const Instance& rope);

// y[i,:] = x[rows[i],:], x [T, D], rows [P] i32 below T; zeros where rows[i] is T. Has no gradient.
Value TakeRows(Recorder& recorder, Value x, Value rows);

// --- Communication between the ranks that differ along `axes`.
// These functions work on whole rows. With one rank they return x.

// The ranks' x [T, D], one after another: [n T, D].
Value AllGather(Recorder& recorder, Value x, AxisSet axes);
// Sums x [n T, D] over the ranks and gives each rank its n-th part: [T, D].
Value ReduceScatter(Recorder& recorder, Value x, AxisSet axes);

// Products with a gathered operand or a scattered result. They are computed piece by piece while
// other pieces travel. Their backward passes gather again, so nothing gathered is kept.

// Linear(AllGather(x)): x [T, K] on each of n ranks, weight [N, K]; returns [n T, N].
struct LinearOperands {
  Value x;
  LinearWeight weight;
  Value bias;  // May be invalid.
};
Value GatherLinear(Recorder& recorder, ProductKind kind, const LinearOperands& of, AxisSet axes);
// Linear(AllGather(x)), of the head.
Value GatherLogits(Recorder& recorder, Value x, Value weight, AxisSet axes);
// ReduceScatter(Linear(x)): x [n T, K], weight [N, K]; returns [T, N]. Sums in rank order.
Value LinearScatter(Recorder& recorder, ProductKind kind, Value x, const LinearWeight& weight,
                    AxisSet axes);

// --- Ops on flat buffers and StepState.
// The passes record them.

// List kInit: sets the initial values of one box, rounded to its dtype if frozen, and the value of
// a range of a buffer.
void InitializeBox(Recorder& recorder, const ParameterBox& box);
void FillFlat(Recorder& recorder, FlatBuffer buffer, const FlatRange& range, double value);
// List kPrepare: copies the master weights to the compute copy.
void CastToCompute(Recorder& recorder, const FlatRange& shard, const FlatRange& own);
// Lists kPrepare and kJoin: splits the masters of a range, which lie where its gradients do, into
// weights and remainders; and puts them there again.
void SplitMasters(Recorder& recorder, const FlatRange& shard, const FlatRange& own);
void JoinMasters(Recorder& recorder, const FlatRange& shard, const FlatRange& own);

// Lists kPrepare, kJoin and kOptimizer: the compute stream waits for the communication stream.
void WaitForCommunication(Recorder& recorder, List list);
// List kOptimizer: the functions below, in the order in which RecordOptimizer calls them.
void ReduceTied(Recorder& recorder, const FlatRange& gradients);
void SumSquares(Recorder& recorder, const FlatRange& gradients);
void ReduceScalars(Recorder& recorder, AxisSet axes);  // Sums losses and the squared gradient norm.
void Clip(Recorder& recorder);
struct StateRange {
  FlatRange flat;  // As in UpdateRange.
  FlatRange shard;
};
void BalanceBias(Recorder& recorder, const StateRange& range, double rate);
// Of one history, or of the histories of a layer's experts, each with so many steps.
void AmaxHistory(Recorder& recorder, const StateRange& range, int64_t steps);
// Gathers the compute copies of a bucket from the ranks that own its shards.
Instance GatherBucket(List list, Stream stream, const Bucket& bucket);
// List kOptimizer: gathers what ranks have made of the gradients of their shards, into the buffer
// of the whole bucket's gradients (Program::gradient_buffer).
void GatherDirections(Recorder& recorder, const Bucket& bucket);

enum class Reduction : uint8_t { kSum, kMax };
// Instances of the communication stream; the bucket pass places them. They run in the last
// micro-batch only. Those of windowed buckets run in each micro-batch.
Instance ReduceGradients(const Bucket& bucket, const FlatRange& gradients, AxisSet axes,
                         Reduction reduction);
Instance ReduceBucket(const Program& program, const Bucket& bucket);

// --- ZeRO FULL (block_windows.h).
// The passes record these ops.

// List kGather, on the communication stream.
Instance GatherWindow(const Bucket& bucket);
Instance GatherWindow(const FrozenBucket& bucket);
// Runs on the compute stream before the first instance of the list that reads the block's weights.
Instance Fetch(List list, int block, int ahead);
// Adds ranges of kGradientWindow to kGradient, or copies them in the first micro-batch of a step.
// Runs on the communication stream.
Instance AddToShard(List list, std::vector<FlatRange> ranges);
void ForgetBlocks(Recorder& recorder, List list);

}  // namespace trainyard::ops
