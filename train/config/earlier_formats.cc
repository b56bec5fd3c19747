#include "train/config/earlier_formats.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/resolved_job_format.h"
#include "train/config/fields.h"

namespace trainyard {
namespace {

// A field that format 3 has and format 2 lacked.
struct LaterField {
  std::vector<const char*> section;  // A job without the section does not get the field.
  const char* name;
  const char* meant;  // Null: the field is null, which means that the model does not use it.
};

// The first releases that wrote format 2 had no packed documents.
const LaterField kSinceFormat2[] = {
    {.section = {"data", "indexed"}, .name = "reset_attention_mask", .meant = "false"},
    {.section = {}, .name = "continues", .meant = nullptr},
    {.section = {"model"}, .name = "import", .meant = ""},
    {.section = {"model", "architecture"}, .name = "vocab_multiple", .meant = nullptr},
    {.section = {"model", "architecture"}, .name = "attention_dropout", .meant = nullptr},
    {.section = {"model", "architecture"}, .name = "hidden_dropout", .meant = nullptr},
    {.section = {"model", "architecture", "moe"}, .name = "aux_loss_scope", .meant = "BATCH"},
};
static_assert(kOldestResolvedJobFormat == 2 && kResolvedJobFormat == 3,
              "each format needs its table");

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
  if (number != kOldestResolvedJobFormat) return job;
  for (const LaterField& field : kSinceFormat2) {
    YamlNode* const section = FindSection(job, field.section);
    if (section == nullptr || section->Find(field.name) != nullptr) continue;
    YamlNode value;
    if (field.meant != nullptr) {
      value.kind = YamlNode::Kind::kScalar;
      value.text = field.meant;
    }
    section->fields.push_back({field.name, std::move(value)});
  }
  return job;
}

}  // namespace trainyard
