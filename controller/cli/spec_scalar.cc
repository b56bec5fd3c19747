#include "controller/cli/spec_scalar.h"

#include <cmath>

#include "absl/strings/numbers.h"

namespace trainyard::cli {
namespace {

struct Alias {
  absl::string_view theirs, ours;
};

// The alias table: settings of NeMo and Megatron, then of AutoModel, then of Hugging Face configs.
constexpr Alias kAliases[] = {
    {"tensor_model_parallel_size", "parallelism.tensor"},
    {"pipeline_model_parallel_size", "parallelism.pipeline"},
    {"virtual_pipeline_model_parallel_size", "parallelism.virtual_pipeline"},
    {"context_parallel_size", "parallelism.context"},
    {"cp_comm_type", "parallelism.context_exchange"},
    {"expert_model_parallel_size", "parallelism.expert"},
    {"use_distributed_optimizer", "parallelism.zero"},
    {"data_parallel_sharding_strategy", "parallelism.zero"},
    {"grad_reduce_in_fp32", "parallelism.reduction"},
    {"profile_step_start", "profile.start_step"},
    {"nsys_start_step", "profile.start_step"},
    {"profile_ranks", "profile.ranks"},
    {"nsys_ranks", "profile.ranks"},
    {"recompute_num_layers", "recompute.blocks"},
    {"activations_checkpoint_num_layers", "recompute.blocks"},
    {"micro_batch_size", "batch.micro"},
    {"global_batch_size", "batch.global"},
    {"seq_length", "batch.sequence"},
    {"tp_size", "parallelism.tensor"},
    {"pp_size", "parallelism.pipeline"},
    {"cp_size", "parallelism.context"},
    {"ep_size", "parallelism.expert"},
    {"local_batch_size", "batch.micro"},
    {"max_steps", "steps"},
    {"train_iters", "steps"},
    {"lr", "optimizer.adamw.learning_rate"},
    {"clip_grad", "optimizer.clip_norm"},
    {"num_layers", "layers"},
    {"num_hidden_layers", "layers"},
    {"hidden_size", "hidden"},
    {"ffn_hidden_size", "ffn"},
    {"intermediate_size", "ffn"},
    {"num_attention_heads", "heads"},
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
    {"moe_aux_loss_coeff", "moe.aux_loss"},
    {"router_aux_loss_coef", "moe.aux_loss"},
    {"norm_topk_prob", "moe.norm_topk"},
};

// "1e3" as 1000. Up to 2^53 alone: beyond it a double does not hold every whole number, so that
// 1e20 would not say which one is meant.
std::optional<int64_t> ReadExponent(absl::string_view text) {
  double real = 0;
  if (!absl::SimpleAtod(text, &real) || !(std::fabs(real) <= 0x1p53) || real != std::floor(real)) {
    return std::nullopt;
  }
  return int64_t(real);
}

}  // namespace

std::optional<uint64_t> ReadUnsigned(absl::string_view text, uint64_t max) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    const std::optional<int64_t> exponent = ReadExponent(text);
    if (!exponent || *exponent < 0) return std::nullopt;
    value = uint64_t(*exponent);
  }
  if (value > max) return std::nullopt;
  return value;
}

std::optional<int32_t> ReadInt32(absl::string_view text) {
  int32_t value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  const std::optional<int64_t> exponent = ReadExponent(text);
  if (!exponent || *exponent < INT32_MIN || *exponent > INT32_MAX) return std::nullopt;
  return int32_t(*exponent);
}

std::optional<double> ReadDouble(absl::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> ReadBool(absl::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::string OurNameFor(absl::string_view name) {
  for (const Alias& alias : kAliases) {
    if (alias.theirs == name) return std::string(alias.ours);
  }
  return "";
}

}  // namespace trainyard::cli
