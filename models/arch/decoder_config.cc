#include "models/arch/decoder_config.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

bool Within(int64_t size, int64_t most) { return size >= 1 && size <= most; }
// The limit of a size that another size limits. If the other size is wrong itself, the limit is
// `most`.
int64_t Limit(int64_t other, int64_t most) { return Within(other, most) ? other : most; }

// A field with one of some values.
template <typename Enum>
Choice ChoiceOf(Enum& member, const std::vector<Enum>& values) {
  Choice choice{.names = {},
                .index = size_t(std::find(values.begin(), values.end(), member) - values.begin()),
                .set = [&member, values](size_t index) { member = values[index]; }};
  for (const Enum value : values) choice.names.emplace_back(Name(value));
  return choice;
}

// Whether families with a plain router lack the field.
bool IsOfOtherRouters(absl::string_view name) {
  constexpr absl::string_view kFields[] = {"ffn",           "moe.shared_experts", "moe.shared_ffn",
                                           "moe.router",    "moe.groups",         "moe.topk_groups",
                                           "moe.norm_topk", "moe.routed_scaling"};
  return std::find(std::begin(kFields), std::end(kFields), name) != std::end(kFields);
}

// What keeps the load of the experts even.
void VisitBalance(MoeConfig& moe, FieldVisit visit) {
  visit({.name = "moe.expert_bias",
         .help = "A bias chooses experts, and moves towards those that are chosen too rarely."},
        &moe.expert_bias);
  visit({.name = "moe.bias_update_rate",
         .help = "How far a step moves the bias.",
         .real = {.least = 0, .most = 1, .note = "usual: 1e-3"},
         .may_differ = MayDiffer::kAlways},
        &moe.bias_update_rate);
  visit({.name = "moe.aux_loss",
         .help = "Coefficient of the load-balancing loss.",
         .real = {.least = 0, .most = 10, .zero = "none", .note = "usual: 1e-3"},
         .may_differ = MayDiffer::kAlways},
        &moe.aux_loss);
  visit(
      {.name = "moe.aux_loss_scope",
       .help = "What is balanced: a micro-batch on all ranks, each sequence, or all layers of the "
               "former together.",
       .may_differ = MayDiffer::kAlways,
       .implied = moe.aux_loss_scope == BalanceScope::kBatch},
      ChoiceOf<BalanceScope>(moe.aux_loss_scope, {BalanceScope::kBatch, BalanceScope::kSequence,
                                                  BalanceScope::kModel}));
}

void VisitMoe(MoeConfig& moe, FieldVisit visit) {
  visit({.name = "moe.experts",
         .help = "Experts of a layer.",
         .whole = {.most = kMaxExperts},
         .required = true},
        &moe.experts);
  const int64_t experts = Limit(moe.experts, kMaxExperts);
  visit({.name = "moe.top_k",
         .help = "Experts that a token is sent to.",
         .whole = {.most = experts},
         .required = true},
        &moe.top_k);
  visit({.name = "moe.expert_ffn",
         .help = "Width of one expert.",
         .whole = {.most = kMaxFfn},
         .required = true},
        &moe.expert_ffn);
  visit({.name = "moe.shared_experts",
         .help = "MLPs that every token goes through besides.",
         .whole = {.least = 0, .most = kMaxExperts},
         .may_differ = MayDiffer::kAlways},
        &moe.shared_experts);
  const bool shared = moe.shared_experts != 0;
  visit({.name = "moe.shared_ffn",
         .help = "Width of the shared experts together; shared_experts x expert_ffn unless given.",
         .whole = {.least = moe.shared_experts > 0 ? 1 : 0,
                   .most = shared ? kMaxFfn : 0,
                   .note = shared ? nullptr : "without shared experts"},
         .over_tensor = OverTensor::kDivided},
        &moe.shared_ffn);
  visit({.name = "moe.router", .help = "How the router scores a token's experts."},
        ChoiceOf<RouterScoring>(moe.router, {RouterScoring::kSoftmax, RouterScoring::kSigmoid}));
  VisitBalance(moe, visit);
  visit({.name = "moe.groups",
         .help = "Groups of neighbouring experts; a divisor of experts.",
         .whole = {.most = experts}},
        &moe.groups);
  visit({.name = "moe.topk_groups",
         .help = "A token's experts are of its best so many groups.",
         .whole = {.most = Limit(moe.groups, experts)}},
        &moe.topk_groups);
  visit({.name = "moe.norm_topk", .help = "The weights of a token's experts sum to 1."},
        &moe.norm_topk);
  visit({.name = "moe.routed_scaling",
         .help = "Multiplies the weights of a token's experts.",
         .real = {.above = 0, .most = 1000, .note = "usual: 1"}},
        &moe.routed_scaling);
  visit({.name = "moe.fake_balanced",
         .help = "For benchmarks: experts in turn, instead of the best.",
         .may_differ = MayDiffer::kAlways},
        &moe.fake_balanced);
}

void VisitRopeScaling(RopeScaling& scaling, FieldVisit visit) {
  const bool unset = scaling.factor == 0;
  visit({.name = "rope_scaling.factor",
         .help = "Llama 3.1's stretching of long rotary wavelengths; 0: none.",
         .real = {.least = 0, .most = 1e6, .zero = "none", .note = "usual: 8"},
         .may_differ = MayDiffer::kAtStart,
         .unset = unset},
        &scaling.factor);
  visit({.name = "rope_scaling.low_freq_factor",
         .help = "Wavelengths longer than original_max_seq over this are stretched whole.",
         .real = {.above = 0, .most = 1e6, .note = "usual: 1"},
         .may_differ = MayDiffer::kAtStart,
         .unset = unset},
        &scaling.low_freq_factor);
  visit({.name = "rope_scaling.high_freq_factor",
         .help = "Wavelengths shorter than original_max_seq over this are not stretched.",
         .real = {.above = 0, .most = 1e6, .note = "usual: 4"},
         .may_differ = MayDiffer::kAtStart,
         .unset = unset},
        &scaling.high_freq_factor);
  visit({.name = "rope_scaling.original_max_seq",
         .help = "Longest sequence before the stretching.",
         .whole = {.most = kMaxSequence},
         .may_differ = MayDiffer::kAtStart,
         .unset = unset},
        &scaling.original_max_seq);
}

void VisitVocabulary(DecoderConfig& c, FieldVisit visit) {
  visit({.name = "vocab",
         .help = "Tokens of the vocabulary.",
         .whole = {.most = kMaxVocab},
         .over_tensor = OverTensor::kDivided,
         .padded_by = "vocab_multiple",
         .padded_to = std::max<int64_t>(1, c.vocab_multiple),
         .required = true},
        &c.vocab);
  visit({.name = "vocab_multiple",
         .help = "Embedding and head have rows without a token, up to a multiple of this number.",
         .whole = {.most = kMaxVocabMultiple},
         .may_differ = MayDiffer::kAlways,
         .unset = c.vocab_multiple == 1},
        &c.vocab_multiple);
  visit({.name = "padding_token",
         .help = "A token that does not train the row of the embedding that it reads; -1: none.",
         .whole = {.least = -1, .most = Limit(c.vocab, kMaxVocab) - 1},
         .may_differ = MayDiffer::kAtStart,
         .unset = c.padding_token == -1},
        &c.padding_token);
}

void VisitHeads(DecoderConfig& c, FieldVisit visit) {
  visit({.name = "heads",
         .help = "Heads of the queries.",
         .whole = {.most = kMaxHeads},
         .over_tensor = OverTensor::kDivided,
         .required = true},
        &c.heads);
  visit({.name = "kv_heads",
         .help = "Heads of keys and values: a divisor of heads; as many as heads unless given.",
         .whole = {.most = kMaxHeads},
         .over_tensor = OverTensor::kReplicated},
        &c.kv_heads);
  visit({.name = "head_dim",
         .help = "Width of a head; hidden / heads unless given.",
         .whole = {.least = 2,
                   .most = kMaxHeadDim,
                   .multiple = 2,
                   .note = "hidden / heads unless it is given"}},
        &c.head_dim);
}

void VisitDropout(DecoderConfig& c, FieldVisit visit) {
  constexpr Interval kProbability = {
      .least = 0, .most = 0.95, .zero = "none", .note = "usual: 0, 0.1"};
  visit({.name = "attention_dropout",
         .help = "Probability with which training drops a weight of attention.",
         .real = kProbability,
         .may_differ = MayDiffer::kAlways,
         .unset = c.attention_dropout == 0},
        &c.attention_dropout);
  visit({.name = "hidden_dropout",
         .help = "The same for outputs of the embedding, of attention and of the MLP.",
         .real = kProbability,
         .may_differ = MayDiffer::kAlways,
         .unset = c.hidden_dropout == 0},
        &c.hidden_dropout);
}

// Adds a violation if head_dim must be hidden / heads and the quotient is not a whole number. The
// rules of the fields check the two sizes themselves.
void CheckQuotient(const GivenFields& given, const DecoderConfig& c, FieldProblems& problems) {
  if (!Within(c.hidden, kMaxHidden) || !Within(c.heads, kMaxHeads) || c.hidden % c.heads == 0) {
    return;
  }
  if (given.contains("hidden")) {
    const int64_t unit = 2 * c.heads, most = std::min(kMaxHidden, kMaxHeadDim * c.heads);
    return problems.Add("hidden",
                        absl::StrCat("a multiple of 2 x heads = ", unit, ", or a head_dim"),
                        c.hidden, NearestMultiple(c.hidden, unit, most));
  }
  int64_t nearest = 0;
  for (int64_t heads = 1; heads <= kMaxHeads; ++heads) {
    const bool legal =
        c.hidden % (2 * heads) == 0 && c.hidden / heads <= kMaxHeadDim &&
        (given.contains("kv_heads") || heads % c.kv_heads == 0 || c.kv_heads == c.heads);
    const bool nearer = nearest == 0 || std::abs(heads - c.heads) <= std::abs(nearest - c.heads);
    if (legal && nearer) nearest = heads;
  }
  problems.Add("heads",
               absl::StrCat("a divisor of hidden = ", c.hidden,
                            " with an even quotient of at most ", kMaxHeadDim, ", or a head_dim"),
               c.heads, nearest == 0 ? "" : absl::StrCat(nearest));
}

}  // namespace

void VisitDecoder(const DecoderTraits& traits, DecoderConfig& c, FieldVisit visit_all) {
  const auto visit = [&](const FieldRule& rule, const FieldRef& field) {
    if (!traits.plain_router || !IsOfOtherRouters(rule.name)) visit_all(rule, field);
  };
  visit({.name = "layers",
         .help = "Blocks.",
         .whole = {.most = kMaxLayers},
         .required = true,
         .may_differ = MayDiffer::kInSubset},
        &c.layers);
  visit({.name = "hidden",
         .help = "Width of the residual stream.",
         .whole = {.most = kMaxHidden},
         .required = true},
        &c.hidden);
  visit({.name = "ffn",
         .help = traits.experts ? "Of no effect: every MLP is a mixture of experts."
                                : "Width of the MLP.",
         .whole = {.least = traits.experts ? 0 : 1, .most = kMaxFfn},
         .over_tensor = traits.experts ? OverTensor::kWhole : OverTensor::kDivided,
         .required = !traits.experts},
        &c.ffn);
  VisitHeads(c, visit);
  VisitVocabulary(c, visit);
  visit({.name = "max_seq",
         .help = "Longest sequence.",
         .whole = {.most = kMaxSequence},
         .may_differ = traits.position_table ? MayDiffer::kNever : MayDiffer::kAtStart},
        &c.max_seq);
  visit({.name = "norm_eps",
         .help = "Added to the variance in the norms.",
         .real = {.above = 0, .most = 0.1, .note = "usual: 1e-5"}},
        &c.norm_eps);
  if (traits.rope) {
    visit({.name = "rope_base",
           .help = "Base of the rotary wavelengths.",
           .real = {.least = 1, .most = 1e12, .note = "usual: 10000, 500000"},
           .may_differ = MayDiffer::kAtStart},
          &c.rope_base);
  } else {
    visit(
        {.name = "rope_base",
         .help = "0: this family has no rotary positions.",
         .real = {.least = 0, .most = 0, .zero = "none, since this family has no rotary positions"},
         .fixed = true},
        &c.rope_base);
  }
  visit({.name = "tied",
         .help = "The output projection shares the embedding.",
         .may_differ = MayDiffer::kInSubset},
        &c.tied);
  visit({.name = "attention_soft_cap",
         .help = "Attention scores stay below it, in size, by a hyperbolic tangent; 0: no bound.",
         .real = {.least = 0, .most = 1e6, .zero = "none", .note = "usual: 30, 50"},
         .unset = c.attention_soft_cap == 0},
        &c.attention_soft_cap);
  VisitDropout(c, visit);
  if (traits.rope && traits.rope_scaling) VisitRopeScaling(c.rope_scaling, visit);
  if (traits.experts) VisitMoe(*c.moe, visit);
}

void CompleteDecoder(const DecoderConfig& before, const GivenFields& given, FieldProblems& problems,
                     DecoderConfig& c) {
  const auto has = [&](const char* name) { return given.contains(name); };
  if (has("heads") && !has("kv_heads") && before.kv_heads == before.heads) c.kv_heads = c.heads;
  // The quotient replaces any head_dim of the preset: existing specs rely on this rule.
  if ((has("hidden") || has("heads")) && !has("head_dim")) {
    if (c.heads > 0) c.head_dim = c.hidden / c.heads;
    CheckQuotient(given, c, problems);
  }
  if (c.moe) CompleteMoe(given, *c.moe);
}

void CompleteMoe(const GivenFields& given, MoeConfig& moe) {
  const auto has = [&](const char* name) { return given.contains(name); };
  if ((!has("moe.shared_experts") && !has("moe.expert_ffn")) || has("moe.shared_ffn")) return;
  // The rules of the fields report sizes beyond their limits. Here it is enough that the product
  // does not overflow.
  const auto size = [](int64_t value) { return std::clamp<int64_t>(value, 0, kMaxFfn); };
  moe.shared_ffn = size(moe.shared_experts) * size(moe.expert_ffn);
}

void CheckMoe(const MoeConfig& moe, FieldProblems& problems) {
  if (!problems.Legal({"moe.experts", "moe.top_k", "moe.groups"})) return;
  if (moe.experts % moe.groups != 0) {
    return problems.Add("moe.groups", absl::StrCat("a divisor of experts = ", moe.experts),
                        moe.groups, NearestDivisor(moe.experts, moe.groups));
  }
  const int64_t eligible = moe.experts / moe.groups * moe.topk_groups;
  if (problems.Legal({"moe.topk_groups"}) && moe.top_k > eligible) {
    problems.Add("moe.top_k",
                 absl::StrCat("at most the ", eligible, " experts of ", moe.topk_groups, " of ",
                              moe.groups, " groups"),
                 moe.top_k, eligible);
  }
}

void CheckDecoder(const DecoderTraits& traits, absl::string_view family, const DecoderConfig& c,
                  FieldProblems& problems) {
  if (problems.Legal({"heads", "kv_heads"})) {
    if (c.heads % c.kv_heads != 0) {
      problems.Add("kv_heads", absl::StrCat("a divisor of heads = ", c.heads), c.kv_heads,
                   NearestDivisor(c.heads, c.kv_heads));
    }
    if (!traits.grouped_queries && c.kv_heads != c.heads) {
      problems.Add("kv_heads", absl::StrCat("heads = ", c.heads, " in family ", family), c.kv_heads,
                   c.heads);
    }
  }
  if (c.moe) CheckMoe(*c.moe, problems);
}

ModelFacts DecoderFacts(const DecoderConfig& c) {
  ModelFacts facts{
      .layers = c.layers, .max_sequence = c.max_seq, .vocab = c.vocab, .kv_heads = c.kv_heads};
  facts.sizes = {.hidden = c.hidden, .heads = c.heads, .head_dim = c.head_dim, .mlp_width = c.ffn};
  if (c.moe) {
    facts.experts = {.experts = c.moe->experts,
                     .top_k = c.moe->top_k,
                     .layers = c.layers,
                     .aux_loss = c.moe->aux_loss};
    facts.sizes.mlp_width = c.moe->top_k * c.moe->expert_ffn + c.moe->shared_ffn;
  }
  return facts;
}

}  // namespace trainyard
