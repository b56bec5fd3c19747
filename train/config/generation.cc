#include "train/config/generation.h"

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "train/chat/chat_format.h"
#include "train/data/source.h"

namespace trainyard {
namespace {

constexpr char kPrompts[] = "validation.generate.prompts";
constexpr char kTokenizer[] = "validation.generate.tokenizer";

void CheckPrompts(const std::vector<std::string>& prompts, Violations& violations) {
  if (prompts.empty() || prompts.size() > kMostPrompts) {
    violations.Add(kPrompts, absl::StrCat("1 to ", kMostPrompts, " texts"), prompts.size(),
                   prompts.empty() ? 1 : kMostPrompts);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (!prompts[i].empty() && prompts[i].size() <= kMostPromptBytes) continue;
    violations.Add(absl::StrCat(kPrompts, "[", i, "]"),
                   absl::StrCat("a text of 1 to ", kMostPromptBytes, " bytes"), prompts[i].size());
  }
}

}  // namespace

void TakeTokenizerForPrompts(JobConfig& job) {
  if (!job.validation || !job.validation->generate || FactsOf(job.data).byte_tokens) return;
  std::string& tokenizer = job.validation->generate->tokenizer;
  if (!tokenizer.empty()) return;
  const std::string* const of_data = TokenizerIn(job.data);
  tokenizer = of_data != nullptr ? *of_data : job.model.import_path;
}

void ValidateGeneration(const JobConfig& job, const ModelConfig* model, Violations& violations) {
  if (!job.validation || !job.validation->generate) return;
  const GenerationConfig& generate = *job.validation->generate;
  CheckPrompts(generate.prompts, violations);
  const SourceFacts data = FactsOf(job.data);
  if (data.byte_tokens && !generate.tokenizer.empty()) {
    violations.Add(kTokenizer, "none, because the data's tokens are bytes",
                   Quoted(generate.tokenizer));
  }
  if (data.chat && data.chat->format == kNoChatFormat) {
    violations.Add("data.chat.format", "a format of chats, in which prompts are questions",
                   kNoChatFormat);
  }
  if (model == nullptr) return;
  const int64_t vocab = FactsOf(*model).vocab;
  if (vocab == 0) {
    violations.Add("validation.generate", "a model of text",
                   absl::StrCat("family ", model->family(), ", which reads no text"));
  } else if (generate.tokenizer.empty() && !data.byte_tokens && !data.of_token_files &&
             vocab != kByteVocabulary) {
    violations.Add(kTokenizer,
                   absl::StrCat("the tokenizer of a model with a vocabulary of ", vocab), "none");
  }
}

}  // namespace trainyard
