#include "controller/cli/spec_scalar.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace trainyard::cli {
namespace {

absl::Status Wanted(absl::string_view wanted, absl::string_view found, absl::string_view nearest) {
  return absl::InvalidArgumentError(
      absl::StrCat("wanted ", wanted, ", found '", found, "'",
                   nearest.empty() ? "" : absl::StrCat("; nearest ", nearest)));
}

struct Alias {
  absl::string_view theirs, ours;
};

// The alias table: settings of NeMo and Megatron, then of AutoModel, then of Hugging Face configs.
constexpr Alias kAliases[] = {
    {"tensor_model_parallel_size", "parallelism.tensor"},
    {"pipeline_model_parallel_size", "parallelism.pipeline"},
    {"virtual_pipeline_model_parallel_size", "parallelism.virtual_pipeline"},
    {"context_parallel_size", "parallelism.context"},
    {"expert_model_parallel_size", "parallelism.expert"},
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
};

}  // namespace

absl::StatusOr<uint64_t> ReadUnsigned(absl::string_view text, uint64_t max) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    double real = 0;
    if (!absl::SimpleAtod(text, &real) || std::isnan(real)) {
      return Wanted("a whole number", text, "");
    }
    if (real < 0) return Wanted("a whole number of at least 0", text, "0");
    if (real != std::floor(real) && real < 0x1p53) {
      return Wanted("a whole number", text, absl::StrCat(uint64_t(std::llround(real))));
    }
    // Beyond 2^53 a double does not hold every integer, so that 1e20 would not say which one is
    // meant.
    max = std::min(max, uint64_t(1) << 53);
    value = real < 0x1p53 ? uint64_t(real) : max + 1;
  }
  if (value > max) return Wanted(absl::StrCat("at most ", max), text, absl::StrCat(max));
  return value;
}

absl::StatusOr<int32_t> ReadInt32(absl::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return Wanted("a whole number", text, "");
  const int64_t nearest = std::clamp<int64_t>(value, INT32_MIN, INT32_MAX);
  if (value != nearest) return Wanted("32 bits", text, absl::StrCat(nearest));
  return int32_t(value);
}

absl::StatusOr<double> ReadDouble(absl::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
    return Wanted("a finite number", text, "");
  }
  return value;
}

absl::StatusOr<bool> ReadBool(absl::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return Wanted("true or false", text, "");
}

std::string OurNameFor(absl::string_view name) {
  for (const Alias& alias : kAliases) {
    if (alias.theirs == name) return std::string(alias.ours);
  }
  return "";
}

}  // namespace trainyard::cli
