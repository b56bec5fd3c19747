// Nemotron and Nemotron-4: a pre-norm decoder with zero-centred LayerNorm, rotary positions on a
// part of each head, and an MLP with squared ReLU and without a gate. Nemotron-4 has grouped
// queries. Linear layers have no biases, norms have.
//
// Source: arXiv:2402.16819, section 2 (15b); arXiv:2406.11704, section 2 (340b); shapes as in
// NVIDIA/NeMo's nemo/collections/llm/gpt/model/nemotron.py. Parameter names are those of the
// checkpoints that transformers reads.
#include "models/families/nemotron.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "models/arch/decoder.h"
#include "models/arch/decoder_hf.h"

namespace trainyard {

int64_t NemotronConfig::rotary_dims() const {
  return std::llround(double(head_dim) * rotary_fraction);
}

namespace {

AttentionOptions AttentionOptionsOf(const NemotronConfig& c) {
  AttentionOptions options = DecoderAttentionOptions(c);
  options.rope->dims = c.rotary_dims();
  return options;
}

class NemotronBlock : public DecoderBlock<Mlp, ZeroCentredLayerNorm> {
 public:
  NemotronBlock(const NemotronConfig& c, int64_t /*layer*/, const std::string& name)
      : DecoderBlock(c, name, DecoderAttention(c, name + ".self_attn", AttentionOptionsOf(c)),
                     DecoderMlp(c, name + ".mlp", Activation::kSquaredRelu)) {}
};

constexpr DecoderTraits kTraits = {.rope_scaling = false, .gated = false};

void Visit(ModelConfig& config, FieldVisit visit) {
  NemotronConfig& c = config.As<NemotronConfig>();
  VisitDecoder(kTraits, c, visit);
  visit({.name = "rotary_fraction",
         .help = "The part of each head's dims that is rotated.",
         .real = {.above = 0, .most = 1, .note = "usual: 0.5"}},
        &c.rotary_fraction);
}

void CheckFields(const ModelConfig& config, FieldProblems& problems) {
  const NemotronConfig& c = config.As<NemotronConfig>();
  CheckDecoder(kTraits, config.family(), c, problems);
  if (!problems.Legal({"head_dim", "rotary_fraction"})) return;
  const double dims = double(c.head_dim) * c.rotary_fraction;
  const int64_t whole = c.rotary_dims();
  if (whole >= 2 && whole % 2 == 0 && std::abs(dims - double(whole)) < 1e-6) return;
  const int64_t nearest = std::max<int64_t>(2, std::llround(dims / 2) * 2);
  problems.Add("rotary_fraction",
               absl::StrCat("an even number of head_dim = ", c.head_dim, " dims"),
               c.rotary_fraction, double(nearest) / double(c.head_dim));
}

NemotronConfig Defaults() {
  NemotronConfig c;
  c.max_seq = 4096;
  c.rope_base = 10'000;
  return c;
}

// The MLP is four times as wide as the model.
NemotronConfig Nemotron(int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads) {
  NemotronConfig c = Defaults();
  c.layers = layers;
  c.hidden = hidden;
  c.ffn = 4 * hidden;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.vocab = 256000;
  return c;
}

HfTable HuggingFace() {
  HfTable table = DecoderHf("nemotron", "NemotronForCausalLM");
  KeyOf(table, "kv_heads").derived = HfHeads;
  KeyOf(table, "head_dim").derived = HfHeadDim;
  KeyOf(table, "norm_eps") = {"norm_eps", "norm_eps", 1e-5};
  table.rope_keys.push_back({"partial_rotary_factor", "rotary_fraction", 0.5});
  table.fixed = {{"hidden_act", "\"relu2\""}, {"attention_bias", "false"}, {"mlp_bias", "false"}};
  table.derived = {
      {.key = "kv_channels",
       .value =
           [](const ModelConfig& config) { return nlohmann::json(FactsOf(config).sizes.head_dim); },
       .written = false}};
  return table;
}

}  // namespace

Family NemotronFamily() {
  Family family = DecoderFamily<kTraits, Decoder<NemotronBlock, NemotronConfig>, NemotronConfig>(
      {.name = "nemotron",
       .activation = "squared_relu",
       .norm = "layernorm1p",
       .defaults = Defaults(),
       .presets = {{"nemotron-8b", {}, Nemotron(32, 4096, 32, 32)},
                   {"nemotron-22b", {}, Nemotron(40, 6144, 48, 48)},
                   {"nemotron4-15b", {}, Nemotron(32, 6144, 48, 8)},
                   {"nemotron4-340b", {"nemotron-340b"}, Nemotron(96, 18432, 96, 8)}},
       .hf = HuggingFace()});
  family.visit = Visit;
  family.check = CheckFields;
  return family;
}

}  // namespace trainyard
