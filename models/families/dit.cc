// DiT, a diffusion transformer. The model reads the patches of a noised latent, attends from each
// patch to all patches, and predicts the noise (or the velocity) of each patch. A condition is
// computed from the time and the class of a sample. In every block, the condition scales and shifts
// the normalised tokens of the sample and gates the outputs of attention and MLP (adaLN-Zero).
//
// Source: Peebles & Xie 2022, arXiv:2212.09748, section 3. Parameter names, the order of elements
// and the eps of norms are those of diffusers' DiTTransformer2DModel. diffusers has one embedder of
// time and class in each block, and released checkpoints hold equal copies. Here all blocks share
// one embedder, as in the paper, and the embedder has the names of block 0's. The output has as
// many channels as the input, because no variance is learned. The weight [D, C, p, p] of the
// convolution is stored as the matrix [D, C p p].
// Letters: T tokens on this rank, B samples, D model width, C channels, p side of a patch.
#include "models/families/dit.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "models/layers/attention.h"
#include "models/layers/linear.h"
#include "models/layers/mlp.h"
#include "models/layers/rows.h"

namespace trainyard {
namespace {

constexpr double kNormEps = 1e-6;    // eps of all norms except the one before the MLP.
constexpr int64_t kTimeWidth = 256;  // Sinusoids of a time.

// Returns the initial distribution of a matrix by Glorot & Bengio 2010: a compromise between
// keeping the variance of activations in forward and the variance of gradients in backward.
Init Glorot(int64_t in, int64_t out) { return Init::Normal(std::sqrt(2.0 / double(in + out))); }
Init EmbedderInit() { return Init::Normal(0.02); }

Attention AttentionOf(const DitConfig& c, const std::string& name) {
  const int64_t width = c.heads * c.head_dim;
  const Init init = Glorot(c.hidden, width);
  return Attention(
      {.heads = c.heads,
       .kv_heads = c.heads,
       .head_dim = c.head_dim,
       .rope = {},
       .mask = {.causal = false}},
      ColumnLinear({{name + ".to_q", width}, {name + ".to_k", width}, {name + ".to_v", width}},
                   c.hidden, /*bias=*/true, init),
      RowLinear(
          {.name = name + ".to_out.0", .in = width, .out = c.hidden, .bias = true, .init = init}));
}

Mlp MlpOf(const DitConfig& c, const std::string& name) {
  const Init init = Glorot(c.hidden, c.ffn);
  return Mlp(
      Activation::kGelu,
      ColumnLinear({{name + ".net.0.proj", c.ffn}}, c.hidden, /*bias=*/true, init),
      RowLinear(
          {.name = name + ".net.2", .in = c.ffn, .out = c.hidden, .bias = true, .init = init}));
}

// Blocks carry "x" [T, D] and "condition" [B, D]. A condition is SiLU of the sum of two embeddings,
// one of the sample's time and one of the sample's class.
class Dit final : public Model {
 public:
  explicit Dit(const DitConfig& c) : config_(c) {}

  int64_t layers() const override { return config_.layers; }
  int64_t max_sequence() const override { return config_.grid() * config_.grid(); }

  std::vector<InputSpec> inputs() const override {
    constexpr auto kReal = InputSpec::Kind::kReal;
    const int64_t c = config_.in_channels, p = config_.patch_size;
    return {{.name = "patches", .kind = kReal, .shape = {c, p, p}},
            {.name = "target", .kind = kReal, .shape = {p, p, c}},
            {.name = "time", .unit = InputSpec::Unit::kSample, .limit = config_.num_timesteps},
            {.name = "label", .unit = InputSpec::Unit::kSample, .limit = config_.num_classes + 1}};
  }

  Carried Start(Recorder& recorder) const override {
    const int64_t d = config_.hidden, elements = config_.token_elements();
    const WholeLinear patches{"pos_embed.proj", elements, d, Glorot(elements, d)};
    const Value x_TD = patches(recorder, ReadRows(recorder, "patches"));
    recorder.set_label("condition");
    return Carried({{"x", ops::AddGridPositions(recorder, x_TD, config_.grid())},
                    {"condition", Condition(recorder)}});
  }

  Carried Block(Recorder& recorder, int64_t layer, const Carried& carried) const override {
    const DitConfig& c = config_;
    const std::string name = absl::StrCat("transformer_blocks.", layer);
    const Value condition_BD = carried["condition"];
    Value x_TD = carried["x"];
    recorder.set_label("condition");
    const auto of = Modulation(recorder, name + ".norm1.linear", condition_BD, 6);
    recorder.set_label("attention");
    const Value a_TD = ops::AdaptiveNorm(recorder, x_TD, of[0], of[1], kNormEps);
    x_TD = ops::GatedAdd(recorder, x_TD, of[2], AttentionOf(c, name + ".attn1")(recorder, a_TD));
    recorder.set_label("mlp");
    const Value m_TD = ops::AdaptiveNorm(recorder, x_TD, of[3], of[4], c.norm_eps);
    x_TD = ops::GatedAdd(recorder, x_TD, of[5], MlpOf(c, name + ".ff")(recorder, m_TD));
    return Carried({{"x", x_TD}, {"condition", condition_BD}});
  }

  void Loss(Recorder& recorder, const Carried& carried) const override {
    const Value y = Predict(recorder, carried);
    ops::MeanSquare(recorder, y, ReadRows(recorder, "target"));
  }

  // Keeps the output "prediction" [tokens, p p C].
  void KeepOutputs(Recorder& recorder, const Carried& carried) const override {
    KeepRows(recorder, "prediction", Predict(recorder, carried));
  }

 private:
  Value Condition(Recorder& recorder) const {
    const int64_t d = config_.hidden;
    const std::string name = "transformer_blocks.0.norm1.emb";
    const WholeLinear in{name + ".timestep_embedder.linear_1", kTimeWidth, d, EmbedderInit()};
    const WholeLinear out{name + ".timestep_embedder.linear_2", d, d, EmbedderInit()};
    const Value time = ops::TimeEmbedding(recorder, recorder.Read("time"), kTimeWidth);
    const Value time_BD = out(recorder, ops::Silu(recorder, in(recorder, time)));
    const Value table = recorder.Parameter({.name = name + ".class_embedder.embedding_table.weight",
                                            .shape = {config_.num_classes + 1, d},
                                            .init = EmbedderInit(),
                                            .decay = true});
    const Value label_BD = ops::Embedding(recorder, table, recorder.Read("label"));
    return ops::Silu(recorder, ops::Add(recorder, time_BD, label_BD));
  }

  // Computes from the condition of each sample `parts` rows of D elements: shifts, scales and gates
  // for all tokens of the sample. The weights are initialised to zero, so a new block returns its
  // input unchanged.
  std::vector<Value> Modulation(Recorder& recorder, const std::string& name, Value condition_BD,
                                int64_t parts) const {
    const int64_t d = config_.hidden;
    const WholeLinear linear{name, d, parts * d, Init::Zeros()};
    return ops::SpreadSamples(recorder, linear(recorder, condition_BD), parts);
  }

  Value Predict(Recorder& recorder, const Carried& carried) const {
    recorder.set_label("condition");
    const auto of = Modulation(recorder, "proj_out_1", carried["condition"], 2);
    recorder.set_label("head");
    const Value y_TD = ops::AdaptiveNorm(recorder, carried["x"], of[0], of[1], kNormEps);
    const WholeLinear out{"proj_out_2", config_.hidden, config_.token_elements(), Init::Zeros()};
    return out(recorder, y_TD);
  }

  DitConfig config_;
};

void VisitSamples(DitConfig& c, FieldVisit visit) {
  constexpr int64_t kMaxChannels = 1024, kMaxSide = 1024, kMaxPatch = 64;
  visit({.name = "in_channels",
         .help = "Channels of the latents. The output has as many.",
         .whole = {.most = kMaxChannels}},
        &c.in_channels);
  visit({.name = "sample_size",
         .help = "Height and width of the latents.",
         .whole = {.most = kMaxSide},
         .may_differ = MayDiffer::kAtStart},
        &c.sample_size);
  visit({.name = "patch_size",
         .help = "Height and width of a token; a divisor of sample_size.",
         .whole = {.most = kMaxPatch}},
        &c.patch_size);
  visit({.name = "num_classes",
         .help = "Classes of the samples. The label after the last one is that of none.",
         .whole = {.most = kMaxVocab - 1}},
        &c.num_classes);
  visit({.name = "num_timesteps",
         .help = "Steps of the diffusion; a sample's time is below it.",
         // With 20, noise would replace the whole sample at the last time.
         .whole = {.least = 25, .most = 10'000},
         .may_differ = MayDiffer::kAtStart},
        &c.num_timesteps);
}

void Visit(ModelConfig& config, FieldVisit visit) {
  DitConfig& c = config.As<DitConfig>();
  visit({.name = "layers",
         .help = "Blocks.",
         .whole = {.most = kMaxLayers},
         .required = true,
         .may_differ = MayDiffer::kInSubset},
        &c.layers);
  visit({.name = "hidden",
         .help = "Width of the residual stream.",
         .whole = {.least = 4, .most = kMaxHidden, .multiple = 4},
         .required = true},
        &c.hidden);
  visit({.name = "ffn",
         .help = "Width of the MLP; 4 x hidden unless given.",
         .whole = {.most = kMaxFfn},
         .over_tensor = OverTensor::kDivided},
        &c.ffn);
  visit({.name = "heads",
         .help = "Heads of the attention.",
         .whole = {.most = kMaxHeads},
         .over_tensor = OverTensor::kDivided,
         .required = true},
        &c.heads);
  visit({.name = "head_dim",
         .help = "Width of a head; hidden / heads unless given.",
         .whole = {.least = 2,
                   .most = kMaxHeadDim,
                   .multiple = 2,
                   .note = "hidden / heads unless it is given"}},
        &c.head_dim);
  VisitSamples(c, visit);
  visit({.name = "norm_eps",
         .help = "Added to the variance in the norm before the MLP; the others add 1e-6.",
         .real = {.above = 0, .most = 0.1, .note = "usual: 1e-5"}},
        &c.norm_eps);
}

void Complete(const ModelConfig&, const GivenFields& given, FieldProblems& problems,
              ModelConfig& config) {
  DitConfig& c = config.As<DitConfig>();
  const auto has = [&](const char* name) { return given.contains(name); };
  // The rule of `hidden` reports a size beyond its limit.
  const bool legal = c.hidden >= 1 && c.hidden <= kMaxHidden;
  if (has("hidden") && !has("ffn") && legal) c.ffn = 4 * c.hidden;
  if ((has("hidden") || has("heads")) && !has("head_dim") && legal && c.heads >= 1) {
    c.head_dim = c.hidden / c.heads;
    if (c.hidden % c.heads != 0) {
      problems.Add("heads", absl::StrCat("a divisor of hidden = ", c.hidden, ", or a head_dim"),
                   c.heads, NearestDivisor(c.hidden, c.heads));
    }
  }
}

void CheckFields(const ModelConfig& config, FieldProblems& problems) {
  const DitConfig& c = config.As<DitConfig>();
  if (!problems.Legal({"sample_size", "patch_size"})) return;
  if (c.sample_size % c.patch_size != 0) {
    problems.Add("patch_size", absl::StrCat("a divisor of sample_size = ", c.sample_size),
                 c.patch_size, NearestDivisor(c.sample_size, c.patch_size));
  }
}

ModelFacts Facts(const ModelConfig& config) {
  const DitConfig& c = config.As<DitConfig>();
  return {
      .layers = c.layers,
      .max_sequence = c.grid() * c.grid(),
      .one_sequence = true,
      .kv_heads = c.heads,
      .experts = {},
      .sizes = {.hidden = c.hidden, .heads = c.heads, .head_dim = c.head_dim, .mlp_width = c.ffn}};
}

// Returns a configuration of table 1 of the paper for images of 256 x 256. Latents are 32 x 32, in
// patches of 2 x 2.
ModelConfig Of(int64_t layers, int64_t hidden, int64_t heads) {
  return ModelConfig("dit", DitConfig{.layers = layers,
                                      .hidden = hidden,
                                      .ffn = 4 * hidden,
                                      .heads = heads,
                                      .head_dim = hidden / heads});
}

}  // namespace

Family DitFamily() {
  const std::string name = "dit";
  Family family = {.name = name,
                   .defaults = ModelConfig(name, DitConfig()),
                   .activation = "gelu",
                   .norm = "adaptive_layernorm",
                   .bias = true,
                   .position = "fixed_grid",
                   .presets = {{"dit-s-2", {}, Of(12, 384, 6)},
                               {"dit-b-2", {}, Of(12, 768, 12)},
                               {"dit-l-2", {}, Of(24, 1024, 16)},
                               {"dit-xl-2", {}, Of(28, 1152, 16)}}};
  family.visit = Visit;
  family.complete = Complete;
  family.check = CheckFields;
  family.facts = Facts;
  family.create = [](const ModelConfig& config) -> std::unique_ptr<Model> {
    return std::make_unique<Dit>(config.As<DitConfig>());
  };
  return family;
}

}  // namespace trainyard
