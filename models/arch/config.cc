#include "models/arch/config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/arch/registry.h"

namespace trainyard {
namespace {

// Adds violations of the fields below one path.
class Fields {
 public:
  Fields(Violations& violations, absl::string_view path) : violations_(violations), path_(path) {}

  void Add(absl::string_view field, absl::string_view description) {
    violations_.Add(absl::StrCat(path_, path_.empty() ? "" : ".", field), description);
  }

  // Whether `value` is a size within its limit.
  bool Size(absl::string_view field, int64_t value, int64_t limit) {
    if (value >= 1 && value <= limit) return true;
    Add(field, Wanted(absl::StrCat("1 to ", limit), value, std::clamp<int64_t>(value, 1, limit)));
    return false;
  }

 private:
  Violations& violations_;
  std::string path_;
};

void AddUnknownFamily(absl::string_view found, Fields& fields) {
  const std::string near = NearestName(found, FamilyNames());
  fields.Add("family",
             Wanted(absl::StrJoin(FamilyNames(), " or "), absl::StrCat("\"", found, "\""), near));
}

// The divisor of `value` closest to `wanted`, the larger one of two equally close.
int64_t NearestDivisor(int64_t value, int64_t wanted) {
  int64_t best = 1;
  for (int64_t d = 1; d <= value; ++d) {
    if (value % d == 0 && std::abs(d - wanted) <= std::abs(best - wanted)) best = d;
  }
  return best;
}

template <typename T>
void Take(const std::optional<T>& from, T& to) {
  if (from) to = *from;
}

MoeConfig Merge(MoeConfig moe, const MoeFields& fields) {
  ForEachField([](const char*, const auto& from, auto& to) { Take(from, to); }, fields, moe);
  if ((fields.shared_experts || fields.expert_ffn) && !fields.shared_ffn) {
    moe.shared_ffn = moe.shared_experts * moe.expert_ffn;
  }
  return moe;
}

ModelConfig Merge(ModelConfig config, const ModelFields& fields) {
  const bool grouped = config.kv_heads != config.heads;
  Take(fields.layers, config.layers);
  Take(fields.hidden, config.hidden);
  Take(fields.ffn, config.ffn);
  Take(fields.heads, config.heads);
  Take(fields.vocab, config.vocab);
  Take(fields.max_seq, config.max_seq);
  Take(fields.norm_eps, config.norm_eps);
  Take(fields.tied, config.tied);
  if (fields.heads && !grouped) config.kv_heads = config.heads;
  Take(fields.kv_heads, config.kv_heads);
  if ((fields.hidden || fields.heads) && config.heads > 0) {
    config.head_dim = config.hidden / config.heads;
  }
  Take(fields.head_dim, config.head_dim);
  if (fields.rope_base) config.rope_scaling.reset();
  Take(fields.rope_base, config.rope_base);
  if (fields.moe) config.moe = Merge(config.moe.value_or(MoeConfig()), *fields.moe);
  return config;
}

// Where head_dim is to be the quotient, there has to be one. The sizes themselves are Validate's.
void CheckQuotient(const ModelConfig& c, const ModelFields& given, Fields& fields) {
  const auto within = [](int64_t size, int64_t limit) { return size >= 1 && size <= limit; };
  if (given.head_dim || !(given.hidden || given.heads) || !within(c.hidden, kMaxHidden) ||
      !within(c.heads, kMaxHeads) || c.hidden % c.heads == 0) {
    return;
  }
  if (given.hidden) {
    const int64_t unit = 2 * c.heads, most = std::min(kMaxHidden, kMaxHeadDim * c.heads);
    return fields.Add("hidden",
                      Wanted(absl::StrCat("a multiple of 2 x heads = ", unit, ", or a head_dim"),
                             c.hidden, NearestMultiple(c.hidden, unit, most)));
  }
  int64_t nearest = 0;
  for (int64_t heads = 1; heads <= kMaxHeads; ++heads) {
    const bool legal = c.hidden % (2 * heads) == 0 && c.hidden / heads <= kMaxHeadDim &&
                       (given.kv_heads || heads % c.kv_heads == 0 || c.kv_heads == c.heads);
    const bool nearer = nearest == 0 || std::abs(heads - c.heads) <= std::abs(nearest - c.heads);
    if (legal && nearer) nearest = heads;
  }
  fields.Add("heads", Wanted(absl::StrCat("a divisor of hidden = ", c.hidden,
                                          " with an even quotient of at most ", kMaxHeadDim,
                                          ", or a head_dim"),
                             c.heads, nearest == 0 ? "" : absl::StrCat(nearest)));
}

void ValidateHeads(const ModelConfig& c, Fields& fields) {
  const bool heads = fields.Size("heads", c.heads, kMaxHeads);
  const bool kv_heads = fields.Size("kv_heads", c.kv_heads, kMaxHeads);
  if (heads && kv_heads && c.heads % c.kv_heads != 0) {
    fields.Add("kv_heads", Wanted(absl::StrCat("a divisor of heads = ", c.heads), c.kv_heads,
                                  NearestDivisor(c.heads, c.kv_heads)));
  }
  if (c.family == "gpt3" && heads && kv_heads && c.kv_heads != c.heads) {
    fields.Add("kv_heads",
               Wanted(absl::StrCat("heads = ", c.heads, " in this family"), c.kv_heads, c.heads));
  }
  if (c.head_dim < 2 || c.head_dim > kMaxHeadDim || c.head_dim % 2 != 0) {
    const int64_t nearest = std::clamp<int64_t>(c.head_dim / 2 * 2, 2, kMaxHeadDim);
    fields.Add("head_dim", Wanted(absl::StrCat("an even number from 2 to ", kMaxHeadDim,
                                               " (hidden / heads unless it is given)"),
                                  c.head_dim, nearest));
  }
}

void ValidateGroups(const MoeConfig& moe, Fields& fields) {
  if (!fields.Size("moe.groups", moe.groups, moe.experts)) return;
  if (moe.experts % moe.groups != 0) {
    return fields.Add("moe.groups", Wanted(absl::StrCat("a divisor of experts = ", moe.experts),
                                           moe.groups, NearestDivisor(moe.experts, moe.groups)));
  }
  if (!fields.Size("moe.topk_groups", moe.topk_groups, moe.groups)) return;
  const int64_t eligible = moe.experts / moe.groups * moe.topk_groups;
  if (moe.top_k > eligible) {
    fields.Add("moe.top_k", Wanted(absl::StrCat("at most the ", eligible, " experts of ",
                                                moe.topk_groups, " of ", moe.groups, " groups"),
                                   moe.top_k, eligible));
  }
}

void ValidateMoe(const MoeConfig& moe, Fields& fields) {
  if (fields.Size("moe.experts", moe.experts, kMaxExperts) &&
      fields.Size("moe.top_k", moe.top_k, moe.experts)) {
    ValidateGroups(moe, fields);
  }
  fields.Size("moe.expert_ffn", moe.expert_ffn, kMaxFfn);
  if (moe.shared_experts < 0 || moe.shared_experts > kMaxExperts) {
    fields.Add("moe.shared_experts",
               Wanted(absl::StrCat("0 to ", kMaxExperts), moe.shared_experts,
                      std::clamp<int64_t>(moe.shared_experts, 0, kMaxExperts)));
  } else if (moe.shared_experts == 0 && moe.shared_ffn != 0) {
    fields.Add("moe.shared_ffn", Wanted("0 without shared experts", moe.shared_ffn, 0));
  } else if (moe.shared_experts > 0) {
    fields.Size("moe.shared_ffn", moe.shared_ffn, kMaxFfn);
  }
  const auto number = [&](absl::string_view name, double value, bool legal, const char* wanted) {
    if (!legal) fields.Add(name, Wanted(wanted, value));  // NaN is never legal.
  };
  number("moe.bias_update_rate", moe.bias_update_rate,
         moe.bias_update_rate >= 0 && moe.bias_update_rate <= 1, "0 <= x <= 1 (usual: 1e-3)");
  number("moe.aux_loss", moe.aux_loss, moe.aux_loss >= 0 && moe.aux_loss <= 10,
         "0 (none) <= x <= 10 (usual: 1e-3)");
  number("moe.routed_scaling", moe.routed_scaling,
         moe.routed_scaling > 0 && moe.routed_scaling <= 1000, "0 < x <= 1000 (usual: 1)");
}

}  // namespace

ModelConfig Override(ModelConfig config, const ModelFields& fields, Violations& violations,
                     absl::string_view path) {
  Fields out(violations, path);
  if (fields.family && *fields.family != config.family) {
    out.Add("family", Wanted(absl::StrCat("none beside a preset, or its own, \"", config.family,
                                          "\" (another one goes inline, as architecture)"),
                             absl::StrCat("\"", *fields.family, "\"")));
  }
  config = Merge(std::move(config), fields);
  CheckQuotient(config, fields, out);
  return config;
}

ModelConfig FromFields(const ModelFields& fields, Violations& violations, absl::string_view path) {
  Fields out(violations, path);
  if (!fields.family) {
    out.Add("family", Wanted(absl::StrJoin(FamilyNames(), " or "), "none"));
    return {};
  }
  const Family* family = FindFamily(*fields.family);
  if (family == nullptr) {
    AddUnknownFamily(*fields.family, out);
    return {};
  }
  const auto require = [&](absl::string_view name, const std::optional<int64_t>& field) {
    if (!field)
      out.Add(name, Wanted("a size, which an inline architecture has no default for", "none"));
  };
  require("layers", fields.layers);
  require("hidden", fields.hidden);
  if (family->defaults.moe) {
    const MoeFields moe = fields.moe.value_or(MoeFields());
    require("moe.experts", moe.experts);
    require("moe.top_k", moe.top_k);
    require("moe.expert_ffn", moe.expert_ffn);
  } else {
    require("ffn", fields.ffn);
  }
  require("heads", fields.heads);
  require("vocab", fields.vocab);
  ModelConfig config = Merge(family->defaults, fields);
  CheckQuotient(config, fields, out);
  return config;
}

void Validate(const ModelConfig& c, Violations& violations, absl::string_view path) {
  Fields fields(violations, path);
  const Family* family = FindFamily(c.family);
  if (family == nullptr) return AddUnknownFamily(c.family, fields);
  fields.Size("layers", c.layers, kMaxLayers);
  fields.Size("hidden", c.hidden, kMaxHidden);
  if (!family->defaults.moe) fields.Size("ffn", c.ffn, kMaxFfn);
  fields.Size("vocab", c.vocab, kMaxVocab);
  fields.Size("max_seq", c.max_seq, kMaxSequence);
  ValidateHeads(c, fields);
  if (family->defaults.moe && c.moe) {
    ValidateMoe(*c.moe, fields);
  } else if (c.moe) {
    fields.Add("moe",
               Wanted(absl::StrCat("none, since family ", c.family, " has no experts"), "some"));
  }
  if (!(c.norm_eps > 0 && c.norm_eps <= 0.1)) {  // Refuses NaN, too.
    fields.Add("norm_eps", Wanted("0 < x <= 0.1 (usual: 1e-5)", c.norm_eps));
  }
  if (family->position == "rope") {
    if (!(c.rope_base >= 1 && c.rope_base <= 1e12)) {
      fields.Add("rope_base", Wanted("1 <= x <= 1e12 (usual: 10000, 500000)", c.rope_base));
    }
  } else if (c.rope_base != 0) {
    fields.Add("rope_base",
               Wanted(absl::StrCat("none, since family ", c.family, " has no rotary positions"),
                      c.rope_base));
  }
}

}  // namespace trainyard
