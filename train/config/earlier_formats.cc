#include "train/config/earlier_formats.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/resolved_job_format.h"
#include "train/config/fields.h"

namespace trainyard {
namespace {

// A field that a format has and earlier ones lacked.
struct LaterField {
  int64_t format;                    // The first one that has the field.
  std::vector<const char*> section;  // A job without the section does not get the field.
  const char* name;
  // "[]": an empty list. Null: the field is null, which means that the model does not use it.
  const char* meant;
};

// The first releases that wrote format 2 had no packed documents.
const LaterField kLaterFields[] = {
    {3, {"data", "indexed"}, "reset_attention_mask", "false"},
    {3, {"model"}, "import", ""},
    {3, {"model", "architecture"}, "vocab_multiple", nullptr},
    {3, {"model", "architecture"}, "attention_dropout", nullptr},
    {3, {"model", "architecture"}, "hidden_dropout", nullptr},
    {3, {"model", "architecture", "moe"}, "aux_loss_scope", "BATCH"},
    {4, {}, "continues", nullptr},
    {4, {"model"}, "ignore_keys", "[]"},
    {5, {"model", "architecture"}, "padding_token", nullptr},
    {5, {"data", "indexed"}, "eod_mask_loss", "false"},
    {5, {"data", "blend"}, "eod_mask_loss", "false"},
    {5, {"data", "synthetic"}, "document_tokens", "0"},
    {5, {}, "adapter", nullptr},
    {5, {}, "fp8", nullptr},
    {5, {"optimizer", "adamw"}, "state", "F32"},
    {5, {"optimizer"}, "offload", "false"},
    {5, {}, "preference", nullptr},
    {5, {"validation"}, "generate", nullptr},
    {5, {"checkpoint"}, "keep_best", "0"},
    {5, {"data", "text"}, "tokenizer_path", ""},
};
static_assert(kOldestResolvedJobFormat == 2 && kResolvedJobFormat == 5,
              "each format needs its rows");

// Null if there is no such mapping.
YamlNode* FindSection(YamlNode& job, const std::vector<const char*>& names) {
  YamlNode* at = &job;
  for (const char* name : names) {
    const auto found = std::find_if(at->fields.begin(), at->fields.end(),
                                    [&](const YamlField& field) { return field.key == name; });
    if (found == at->fields.end()) return nullptr;
    at = &found->value;
  }
  return at->kind == YamlNode::Kind::kMapping ? at : nullptr;
}

}  // namespace

YamlNode WithLaterFields(YamlNode job) {
  const YamlNode* const format = job.Find("format");
  int64_t number = 0;
  if (format == nullptr || !absl::SimpleAtoi(format->text, &number)) return job;
  for (const LaterField& field : kLaterFields) {
    if (number >= field.format) continue;
    YamlNode* const section = FindSection(job, field.section);
    if (section == nullptr || section->Find(field.name) != nullptr) continue;
    YamlNode value;
    if (field.meant != nullptr) {
      const bool list = absl::string_view(field.meant) == "[]";
      value.kind = list ? YamlNode::Kind::kSequence : YamlNode::Kind::kScalar;
      if (!list) value.text = field.meant;
    }
    section->fields.push_back({field.name, std::move(value)});
  }
  return job;
}

}  // namespace trainyard
