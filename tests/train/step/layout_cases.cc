// Which layouts there are (layouts.h): sizes for each, and lists of them.

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "models/arch/registry.h"
#include "tests/models/tiny.h"
#include "tests/testing/printed_seed.h"
#include "tests/train/step/layouts.h"

namespace trainyard::testing {

bool LayoutCase::is_even() const {
  const DecoderConfig* const decoder = FindDecoder(model);
  return decoder != nullptr && decoder->moe && decoder->moe->fake_balanced && expert_rows >= 1;
}

std::string LayoutCase::name() const {
  const ParallelismConfig& p = job.parallelism;
  const RecomputeConfig& again = job.recompute;
  const DecoderConfig* const decoder = FindDecoder(model);
  const std::string experts = decoder != nullptr && decoder->moe
                                  ? absl::StrCat("_", kRouters[router], "_", Name(p.expert_split),
                                                 "_rows", int(10 * expert_rows))
                                  : "";
  return absl::StrCat(model.family(), experts, decoder != nullptr && decoder->tied ? "_tied" : "",
                      "_tensor", p.tensor, "_context", p.context,
                      p.context_exchange == ContextExchange::kAllGather ? "gathered" : "",
                      "_expert", p.expert, "_data", DataParallel(job), "_pipeline", p.pipeline, "x",
                      p.virtual_pipeline, "_",
                      (p.schedule != nullptr ? p.schedule : p.schedule_kind())->name, "_zero",
                      int(p.zero), again.blocks > 0 ? absl::StrCat("_again", again.blocks) : "",
                      again.norms_and_activations ? "_norms_again" : "",
                      frozen.empty() ? "" : absl::StrCat("_frozen_", frozen),
                      ResetsAttentionMask(job.data) ? "_documents" : "");
}

namespace {

// And two: parts of one and two blocks.
int64_t LayersOf(const ParallelismConfig& p) {
  return std::max<int64_t>(2, p.pipeline * p.virtual_pipeline - 1);
}

// Sizes of a decoder for the case's layout.
void SizeDecoder(LayoutCase& c) {
  const ParallelismConfig& p = c.job.parallelism;
  const int64_t tensor = p.tensor;
  DecoderConfig& decoder = AsDecoder(c.model);
  decoder.layers = LayersOf(p);
  decoder.heads = 2 * tensor;
  // Fewer key/value heads than tensor ranks where that divides.
  decoder.kv_heads = tensor % 2 == 0 && tensor >= 4 ? tensor / 2 : tensor;
  decoder.head_dim = 2;
  decoder.hidden = 6;
  decoder.ffn = 3 * tensor;
  decoder.vocab = 5 * tensor;
  decoder.max_seq = 2 * tensor * p.context + 1;
  if (decoder.moe) {
    decoder.ffn = 0;
    decoder.moe->experts = std::max<int64_t>(4, 2 * tensor * p.context * p.expert);
    decoder.moe->expert_ffn = 3;
    c = WithRouter(c, 0);
  }
}

}  // namespace

LayoutCase MakeLayoutCase(const std::string& model, const ParallelismConfig& p, int64_t data) {
  LayoutCase c;
  c.model = FindFamily(model)->defaults;
  c.job.parallelism = p;
  c.job.devices = p.tensor * p.context * p.pipeline * data;
  c.job.precision = PrecisionName::kF64;
  // AdamW amplifies rounding where gradients are near zero.
  c.job.optimizer.options["epsilon"] = 1e-3;
  c.job.batch.micro = 1;
  c.job.batch.sequence = 2 * p.tensor * p.context;
  c.job.batch.global = data * (p.pipeline > 1 ? 2 * p.pipeline : 2);
  const FamilyCase& family = CaseOf(model);
  if (family.is_decoder) SizeDecoder(c);
  if (family.size_layout != nullptr) {
    LayoutSizes sizes = {.tensor = p.tensor,
                         .context = p.context,
                         .pipeline = p.pipeline,
                         .layers = LayersOf(p),
                         .sequence = c.job.batch.sequence};
    family.size_layout(c.model, sizes);
    c.job.batch.sequence = sizes.sequence;
    c.job.batch.micro *= sizes.samples;
    c.job.batch.global *= sizes.samples;
  }
  return c;
}

LayoutCase HeldUp(LayoutCase c) {
  c.held_up = std::max<uint64_t>(1, PrintedSeed());
  return c;
}

LayoutCase WithRouter(LayoutCase c, int router) {
  c.router = router;
  DecoderConfig& decoder = AsDecoder(c.model);
  MoeConfig& moe = *decoder.moe;
  moe = {.experts = moe.experts, .top_k = 2, .expert_ffn = moe.expert_ffn, .latent = moe.latent};
  const std::string name = kRouters[router];
  if (name == "softmax") moe.aux_loss = 0.05;
  if (name == "sigmoid" || name == "biased") moe.router = RouterScoring::kSigmoid;
  if (name == "sigmoid" || name == "turns") {
    moe.shared_experts = 1;
    moe.shared_ffn = 3 * c.job.parallelism.tensor;
  }
  if (name == "sigmoid") moe.aux_loss = 0.1, moe.routed_scaling = 2.5;
  if (name == "sigmoid") moe.aux_loss_scope = BalanceScope::kSequence;
  if (name == "biased") moe.expert_bias = true, moe.bias_update_rate = 0.01;
  if (name == "grouped") moe.groups = 2, moe.norm_topk = false;
  if (name == "grouped") moe.aux_loss = 0.05, moe.aux_loss_scope = BalanceScope::kModel;
  if (!HasField(c.model, "moe.router")) {  // Of all that, the losses and the bias.
    moe = {.experts = moe.experts,
           .top_k = moe.top_k,
           .expert_ffn = moe.expert_ffn,
           .expert_bias = moe.expert_bias,
           .bias_update_rate = moe.bias_update_rate,
           .aux_loss = moe.aux_loss,
           .aux_loss_scope = moe.aux_loss_scope};
  }
  if (name == "turns") {
    moe.fake_balanced = true;
    // A rank counts turns from its first token: then each piece of a sequence begins with expert 0.
    const ParallelismConfig& p = c.job.parallelism;
    c.job.batch.sequence = 2 * p.tensor * p.context * moe.experts / moe.top_k;
    decoder.max_seq = c.job.batch.sequence;
  }
  return c;
}

namespace {

// Each layout with the next router, and every third with experts that take few rows at once.
std::vector<LayoutCase> Routed(std::vector<LayoutCase> cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i] = WithRouter(cases[i], int(i % std::size(kRouters)));
    if (i % 3 == 1) cases[i].expert_rows = 0.3;
  }
  return cases;
}

// Ties the embeddings of about half of the cases, whatever their schedule and ZeRO, where the
// family lets them be tied or not.
void WithTiedEmbeddings(std::vector<LayoutCase>& cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    ModelConfig& model = cases[i].model;
    if (HasField(model, "tied")) AsDecoder(model).tied = RandomBits(1, i, 0) % 2 == 1;
  }
}

}  // namespace

std::vector<LayoutCase> AllLayouts(const std::string& model, int64_t max_ranks) {
  const bool experts = FactsOf(FindFamily(model)->defaults).experts.has_value();
  std::vector<LayoutCase> cases;
  const auto add = [&](ParallelismConfig p, int64_t data) {
    for (Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kFull}) {
      if (zero == Zero::kFull && data * p.context == 1) continue;  // Nothing to share out.
      p.zero = zero;
      if (p.pipeline == 1) {
        for (const char* kind : {"ONE_F_ONE_B", "ZERO_BUBBLE"}) {
          p.schedule = FindSchedule(kind);
          cases.push_back(MakeLayoutCase(model, p, data));
        }
        continue;
      }
      for (const ScheduleKind& kind : AllSchedules()) {
        p.schedule = &kind;
        for (const int chunks : {1, 2, 3}) {
          if (!kind.TakesChunks(chunks) || (chunks == 3 && p.pipeline > 3)) continue;
          p.virtual_pipeline = chunks;
          cases.push_back(MakeLayoutCase(model, p, data));
        }
      }
    }
    if (p.context == 1) return;
    p.context_exchange = ContextExchange::kAllGather;
    p.virtual_pipeline = 1;
    p.schedule = FindSchedule("ONE_F_ONE_B");
    cases.push_back(MakeLayoutCase(model, p, data));
  };
  for (int64_t tensor = 1; tensor <= max_ranks; ++tensor) {
    for (int64_t context = 1; tensor * context <= max_ranks; ++context) {
      for (int64_t pipeline = 1; tensor * context * pipeline <= max_ranks; ++pipeline) {
        for (int64_t data = 1; tensor * context * pipeline * data <= max_ranks; ++data) {
          for (int64_t expert = 1; expert <= (experts ? data : 1); ++expert) {
            if (data % expert != 0) continue;
            add({.tensor = tensor,
                 .pipeline = pipeline,
                 .context = context,
                 .expert = expert,
                 .expert_split = ExpertSplit(cases.size() / 3 % 3)},
                data);
          }
        }
      }
    }
  }
  WithTiedEmbeddings(cases);
  return experts ? Routed(std::move(cases)) : cases;
}

namespace {

// All for up to two ranks, and of the others `middle` for three and four, and `large` for more.
std::vector<LayoutCase> Drawn(const std::string& model, std::vector<LayoutCase> all, int middle,
                              int large) {
  if (absl::NullSafeStringView(std::getenv("TRAINYARD_LAYOUTS")) == "all") return all;
  std::shuffle(all.begin(), all.end(), std::mt19937_64(PrintedSeed()));
  std::vector<LayoutCase> some;
  for (LayoutCase& c : all) {
    if (c.job.devices <= 2 || (c.job.devices <= 4 ? middle-- : large--) > 0) {
      some.push_back(std::move(c));
    }
  }
  CHECK(middle <= 0 && large <= 0) << model << " has few layouts";
  return some;
}

}  // namespace

std::vector<LayoutCase> SomeLayouts(const std::string& model) {
  return Drawn(model, AllLayouts(model, 8), 30, 10);
}

std::vector<LayoutCase> SomeLayoutsOfFour(const std::string& model, int count) {
  return Drawn(model, AllLayouts(model, 4), count, 0);
}

std::vector<LayoutCase> DrawnLayoutsOfEight(const std::string& model, size_t count, uint64_t kind) {
  if (absl::NullSafeStringView(std::getenv("TRAINYARD_LAYOUTS")) == "all") count = 30;
  std::vector<LayoutCase> all = AllLayouts(model, 8);
  std::erase_if(all, [](const LayoutCase& c) { return c.job.devices != 8; });
  std::shuffle(all.begin(), all.end(), std::mt19937_64(PrintedSeed() + kind));
  CHECK(all.size() >= count) << model << " has few layouts";
  all.erase(all.begin() + int64_t(count), all.end());
  return all;
}

std::vector<LayoutCase> RecomputedLayouts(const std::string& model, size_t count) {
  constexpr RecomputeConfig kKinds[] = {{.blocks = 1},
                                        {.norms_and_activations = true},
                                        {.blocks = 1, .norms_and_activations = true},
                                        {.blocks = 100}};
  constexpr PrecisionName kPrecisions[] = {PrecisionName::kF64, PrecisionName::kF32,
                                           PrecisionName::kBF16};
  const std::vector<LayoutCase> all = AllLayouts(model, 8);
  std::vector<LayoutCase> cases;
  std::sample(all.begin(), all.end(), std::back_inserter(cases), count,
              std::mt19937_64(PrintedSeed()));
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].job.recompute = kKinds[i % std::size(kKinds)];
    cases[i].job.precision = kPrecisions[i % std::size(kPrecisions)];
  }
  return cases;
}

std::vector<LayoutCase> FrozenLayouts(const std::string& model, int64_t max_ranks, size_t stride) {
  const std::vector<LayoutCase> all = AllLayouts(model, max_ranks);
  std::vector<LayoutCase> cases;
  for (size_t i = 0; i < all.size(); i += stride) {
    const std::vector<FrozenPart> parts = CaseOf(model).parts(all[i].model);
    const FrozenPart& part = parts[cases.size() % parts.size()];
    LayoutCase& c = cases.emplace_back(all[i]);
    c.frozen = part.name;
    c.job.frozen = part.frozen;
    c.job.trainable = part.trainable;
  }
  return cases;
}

std::vector<LayoutCase> AdaptedLayouts(const std::string& model, int64_t max_ranks, size_t stride) {
  // Not of experts, whose adapters have neither dropout nor magnitudes (AdaptedExpertsLayouts).
  // Not of rank 1: beside new weights, which are small, the adapters would make all heads parallel,
  // and a norm behind them would leave rounding alone of their gradients.
  const std::pair<const char*, LoraConfig> kinds[] = {
      {"all_linear", {.rank = 2, .alpha = 3}},
      {"of_a_product",
       {.rank = 3,
        .targets = {"*q_proj", "*mlp.up_proj", "*mlp.down_proj", "*mixer.up_proj",
                    "*mixer.down_proj", "*shared_experts.*", "*c_*", "*to_v", "*in_proj"},
        .rslora = true}},
      {"beside_modules",
       {.rank = 4, .modules_to_save = {"*norm*", "*ln_*", "lm_head", "*conv1d", "*proj_out_2"}}}};
  const std::vector<LayoutCase> all = AllLayouts(model, max_ranks);
  std::vector<LayoutCase> cases;
  for (size_t i = 0; i < all.size(); i += stride) {
    auto [name, lora] = kinds[cases.size() % std::size(kinds)];
    // Each kind with and without dropout, with and without magnitudes.
    lora.dora = cases.size() / std::size(kinds) / 2 % 2 == 0;
    if (cases.size() % 2 == 0 && CaseOf(model).is_decoder) lora.dropout = 0.25;
    LayoutCase& c = cases.emplace_back(all[i]);
    c.frozen = absl::StrCat("base_of_", name, lora.dora ? "_with_magnitudes" : "");
    c.job.adapter = AdapterConfig{.lora = lora};
  }
  return cases;
}

std::vector<LayoutCase> AdaptedExpertsLayouts(const std::string& model, int64_t max_ranks,
                                              size_t stride) {
  const std::pair<const char*, LoraConfig> kinds[] = {
      {"with_experts", {.rank = 4, .alpha = 3, .targets = {"all-linear", "*.experts.*"}}},
      {"of_first_products", {.rank = 3, .targets = {"*.experts.*up_proj"}, .rslora = true}},
      {"of_second_products", {.rank = 2, .targets = {"*.experts.down_proj"}}}};
  std::vector<LayoutCase> cases;
  if (!FactsOf(FindFamily(model)->defaults).experts) return cases;
  const std::vector<LayoutCase> all = AllLayouts(model, max_ranks);
  for (size_t i = 0; i < all.size(); i += stride) {
    const auto& [name, lora] = kinds[cases.size() % std::size(kinds)];
    LayoutCase& c = cases.emplace_back(all[i]);
    c.frozen = absl::StrCat("base_", name);
    // In half of each kind, what the experts compute is computed again in backward.
    if (cases.size() / std::size(kinds) % 2 == 0) c.job.recompute.blocks = 100;
    c.job.adapter = AdapterConfig{.lora = lora};
  }
  return cases;
}

std::vector<LayoutCase> Nf4Layouts(const std::string& model, int64_t max_ranks, size_t stride) {
  const std::vector<LayoutCase> all = AllLayouts(model, max_ranks);
  std::vector<LayoutCase> cases;
  for (size_t i = 0; i < all.size(); i += stride) {
    LayoutCase& c = cases.emplace_back(all[i]);
    DecoderConfig& decoder = AsDecoder(c.model);
    const int64_t tensor = c.job.parallelism.tensor;
    decoder.hidden = 128;
    decoder.head_dim = 32;  // Two heads of each tensor rank are a block.
    if (decoder.ffn > 0) decoder.ffn = 192 * tensor;
    for (const auto& [field, value] : CaseOf(model).nf4) SetField(c.model, field, value);
    if (decoder.moe) {
      decoder.moe->expert_ffn = 64;
      // Six steps at 0.01 amplify the rounding of the first one (1e-15) a million times.
      c.learning_rate = 1e-3;
    }
    if (decoder.moe && decoder.moe->shared_experts > 0) decoder.moe->shared_ffn = 64 * tensor;
    LoraConfig lora = {.rank = 2, .alpha = 3, .base = LoraBase::kNf4};
    // Of a mixture, half of the cases have adapters of experts, which have no magnitudes.
    const bool of_experts = decoder.moe && cases.size() % 2 == 0;
    if (of_experts) {
      lora.targets = {"all-linear", "*.experts.*"};
      if (cases.size() % 4 == 0) c.job.recompute.blocks = 100;
    } else {
      lora.dora = decoder.moe ? cases.size() % 4 == 1 : cases.size() % 2 == 0;
      if (cases.size() % 3 == 0) lora.dropout = 0.25;
    }
    c.frozen = absl::StrCat("base_in_nf4", lora.dora    ? "_with_magnitudes"
                                           : of_experts ? "_and_adapted_experts"
                                                        : "");
    c.job.adapter = AdapterConfig{.lora = lora};
  }
  return cases;
}

std::vector<LayoutCase> OfEveryFamily(
    const std::function<std::vector<LayoutCase>(const std::string& family)>& layouts) {
  std::vector<LayoutCase> cases;
  for (const std::string& family : FamilyNames()) {
    for (LayoutCase& layout : layouts(family)) cases.push_back(std::move(layout));
  }
  return cases;
}

}  // namespace trainyard::testing
