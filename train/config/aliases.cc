#include "train/config/aliases.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/job_axes.h"
#include "models/program/optimizer/optimizer.h"
#include "train/config/job_config.h"

namespace trainyard {
namespace {

struct Alias {
  absl::string_view theirs, ours;
};

// The alias table: settings of NeMo and Megatron, then of AutoModel, then of Hugging Face configs.
// The names of the parallel axes are in their own table (common/job_axes.h). A * is the name of the
// spec's own optimizer, or of its schedule.
constexpr Alias kAliases[] = {
    {"cp_comm_type", "parallelism.context_exchange"},
    {"use_distributed_optimizer", "parallelism.zero"},
    {"data_parallel_sharding_strategy", "parallelism.zero"},
    {"grad_reduce_in_fp32", "parallelism.reduction"},
    {"profile_step_start", "profile.start_step"},
    {"nsys_start_step", "profile.start_step"},
    {"profile_step_end", "profile.steps"},
    {"nsys_end_step", "profile.steps"},
    {"profile_ranks", "profile.ranks"},
    {"nsys_ranks", "profile.ranks"},
    {"NCCL_DEBUG", "profile.nccl_trace"},
    {"recompute_num_layers", "recompute.blocks"},
    {"activations_checkpoint_num_layers", "recompute.blocks"},
    {"micro_batch_size", "batch.micro"},
    {"global_batch_size", "batch.global"},
    {"seq_length", "batch.sequence"},
    {"local_batch_size", "batch.micro"},
    {"max_steps", "steps"},
    {"train_iters", "steps"},
    {"lr", "optimizer.*.learning_rate"},
    {"clip_grad", "optimizer.clip_norm"},
    {"num_layers", "layers"},
    {"num_hidden_layers", "layers"},
    {"hidden_size", "hidden"},
    {"ffn_hidden_size", "ffn"},
    {"intermediate_size", "ffn"},
    {"num_attention_heads", "heads"},
    {"attention_head_dim", "head_dim"},
    {"num_embeds_ada_norm", "num_classes"},
    {"num_query_groups", "kv_heads"},
    {"num_key_value_heads", "kv_heads"},
    {"vocab_size", "vocab"},
    {"max_position_embeddings", "max_seq"},
    {"num_moe_experts", "moe.experts"},
    {"num_experts", "moe.experts"},
    {"moe_router_topk", "moe.top_k"},
    {"num_experts_per_tok", "moe.top_k"},
    {"moe_ffn_hidden_size", "moe.expert_ffn"},
    {"moe_intermediate_size", "moe.expert_ffn"},
    {"lr_decay_style", "optimizer.schedule"},
    {"lr_warmup_iters", "optimizer.schedule.*.warmup_steps"},
    {"lr_wsd_decay_iters", "optimizer.schedule.wsd.decay_steps"},
    {"lr_wsd_decay_style", "optimizer.schedule.wsd.decay_style"},
    {"data_path", "data.blend"},
    {"attn_pdrop", "attention_dropout"},
    {"resid_pdrop", "hidden_dropout"},
    {"embd_pdrop", "hidden_dropout"},
    {"moe_router_load_balancing_type", "moe.aux_loss_scope"},
    {"moe_aux_loss_coeff", "moe.aux_loss"},
    {"router_aux_loss_coef", "moe.aux_loss"},
    {"norm_topk_prob", "moe.norm_topk"},
    {"num_layers_at_start_in_bf16", "fp8.first_layers_in_bf16"},
    {"num_layers_at_end_in_bf16", "fp8.last_layers_in_bf16"},
    {"fp8_recipe", "precision"},
};

// Values of precisions. A job in FP8 is meant to be fast, and in BF16 it is the fastest here.
// Megatron names recipes without FP8.
constexpr Alias kValueAliases[] = {
    {"FP8", "BF16"},
    {"BF16-MIXED", "BF16"},
    {"BFLOAT16", "BF16"},
    {"16-MIXED", "BF16"},
    {"FLOAT32", "F32"},
    {"32-TRUE", "F32"},
    {"DELAYED", "FP8_DELAYED"},
    {"TENSORWISE", "FP8_CURRENT"},
    {"BLOCKWISE", "FP8_BLOCKWISE"},
};

// Replaces the * of a path by the name that stands there in the spec.
std::string InSectionsOf(const YamlNode& spec, absl::string_view ours) {
  const size_t star = ours.find('*');
  if (star == ours.npos) return std::string(ours);
  const absl::string_view parent = ours.substr(0, star - 1);
  const YamlNode* node = &spec;
  for (const absl::string_view key : absl::StrSplit(parent, '.')) {
    node = node == nullptr ? nullptr : node->Find(key);
  }
  std::vector<std::string> names;
  if (parent == "optimizer") {
    for (const Optimizer* const optimizer : Optimizers()) names.push_back(optimizer->name);
  } else {
    for (const ScheduleShape shape : {ScheduleShape::kCosine, ScheduleShape::kLinear,
                                      ScheduleShape::kConstant, ScheduleShape::kWsd}) {
      names.push_back(Name(shape));
    }
  }
  const auto there = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return node != nullptr && node->Find(name) != nullptr;
  });
  const std::string& chosen = there == names.end() ? names.front() : *there;
  return absl::StrCat(parent, ".", chosen, ours.substr(star + 1));
}

}  // namespace

std::string OurValueFor(absl::string_view value) {
  for (const Alias& alias : kValueAliases) {
    if (alias.theirs == value) return std::string(alias.ours);
  }
  return "";
}

std::string OurNameFor(absl::string_view name, const YamlNode& spec) {
  for (const Alias& alias : kAliases) {
    if (alias.theirs == name) return InSectionsOf(spec, alias.ours);
  }
  std::string ours;
  const AxisSizes<int64_t> axes;
  ForEachAxis(axes, [&](const JobAxis& axis, int64_t) {
    for (const char* theirs : {axis.megatron, axis.automodel}) {
      if (theirs != nullptr && name == theirs) ours = absl::StrCat("parallelism.", axis.name);
    }
  });
  return ours;
}

}  // namespace trainyard
