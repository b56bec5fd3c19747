#include "models/hf/meaningless_keys.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/json.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// What a directory's files are, and which programs wrote them.
constexpr HfIgnored kOfFiles[] = {{"_attn_implementation"},
                                  {"_attn_implementation_autoset"},
                                  {"_commit_hash"},
                                  {"_flash_attn_2_enabled"},
                                  {"_name_or_path"},
                                  {"attn_implementation"},
                                  {"auto_map"},
                                  {"dtype"},
                                  {"initializer_range"},
                                  {"internal_version"},
                                  {"model_max_length"},
                                  {"name_or_path"},
                                  {"neftune_noise_alpha"},
                                  {"tokenizer_class"},
                                  {"torch_dtype"},
                                  {"transformers.js_config"},
                                  {"transformers_version"},
                                  {"unsloth_fixed"},
                                  {"unsloth_version"}};
// How a program computes or returns what it computes, without another result.
constexpr HfIgnored kOfPrograms[] = {{"chunk_size_feed_forward"},
                                     {"gradient_checkpointing"},
                                     {"is_decoder"},
                                     {"original_max_position_embeddings"},  // Without a scaling.
                                     {"output_attentions"},
                                     {"output_hidden_states"},
                                     {"output_router_logits"},  // HfBalance reads it.
                                     {"pretraining_tp"},
                                     {"pruned_heads", "{}"},
                                     {"return_dict"},
                                     {"torchscript"},
                                     {"use_cache"}};
// Numbers of tokens, and how text is generated.
constexpr HfIgnored kOfGeneration[] = {{"bad_words_ids"},
                                       {"begin_suppress_tokens"},
                                       {"bos_token_id"},
                                       {"cls_token_id"},
                                       {"decoder_start_token_id"},
                                       {"diversity_penalty"},
                                       {"do_sample"},
                                       {"early_stopping"},
                                       {"encoder_no_repeat_ngram_size"},
                                       {"eos_token_id"},
                                       {"exponential_decay_length_penalty"},
                                       {"forced_bos_token_id"},
                                       {"forced_eos_token_id"},
                                       {"length_penalty"},
                                       {"mask_token_id"},
                                       {"max_length"},
                                       {"max_new_tokens"},
                                       {"min_length"},
                                       {"no_repeat_ngram_size"},
                                       {"num_beam_groups"},
                                       {"num_beams"},
                                       {"num_return_sequences"},
                                       {"output_scores"},
                                       {"pad_token_id"},
                                       {"prefix"},
                                       {"remove_invalid_values"},
                                       {"repetition_penalty"},
                                       {"return_dict_in_generate"},
                                       {"sep_token_id"},
                                       {"suppress_tokens"},
                                       {"task_specific_params"},
                                       {"temperature"},
                                       {"top_k"},
                                       {"top_p"},
                                       {"typical_p"},
                                       {"unk_token_id"}};
// Of heads for other tasks than text, which an architecture of text does not have.
constexpr HfIgnored kOfTasks[] = {{"_num_labels"}, {"classifier_dropout"}, {"finetuning_task"},
                                  {"id2label"},    {"label2id"},           {"num_labels"},
                                  {"problem_type"}};

template <typename Rows>
const HfIgnored* FindIn(const Rows& rows, const std::string& key) {
  const auto row = std::find_if(std::begin(rows), std::end(rows),
                                [&](const HfIgnored& ignored) { return key == ignored.key; });
  return row == std::end(rows) ? nullptr : &*row;
}

}  // namespace

const HfIgnored* FindIgnored(const HfTable& table, const std::string& key) {
  for (const HfIgnored* row :
       {FindIn(table.ignored, key), FindIn(kOfFiles, key), FindIn(kOfPrograms, key),
        FindIn(kOfGeneration, key), FindIn(kOfTasks, key)}) {
    if (row != nullptr) return row;
  }
  return nullptr;
}

bool MeansNothing(const HfIgnored* row, const Json& value) {
  if (value.is_null()) return true;
  if (row != nullptr && row->value != nullptr) return value == ParseJson<Json>(row->value);
  return row != nullptr || value == false;
}

}  // namespace trainyard
