#include "train/generate/generate.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/chat/chat_encoder.h"
#include "train/generate/stop_texts.h"
#include "train/generate/tokenizer_of.h"
#include "train/tokenizer/text_stream.h"

namespace trainyard {
namespace {

absl::Status Validate(const GenerateOptions& options) {
  if (options.tokens < 0 || options.tokens > kMaxGeneratedTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: wanted 0 to ", kMaxGeneratedTokens, ", found ", options.tokens));
  }
  return Check(options.sampling);
}

absl::StatusOr<EncodedQuestion> EncodeChat(const GenerateOptions& options,
                                           const InferenceModel& model) {
  if (model.tokenizer_path().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(model.checkpoint(), ": wanted a model with a tokenizer for --chat, found one ",
                     "of bytes; --prompt takes any text"));
  }
  ChatFormatChoice choice = options.format;
  if (choice.name.empty()) {
    ASSIGN_OR_RETURN(const auto of_run, ChatFormatOf(model.checkpoint()));
    if (of_run) choice = *of_run;
    if (!options.format.date.empty()) choice.date = options.format.date;
  }
  choice.tokenizer = model.tokenizer_path();
  ASSIGN_OR_RETURN(ChosenChatFormat chosen, ChooseChatFormat(choice));
  if (chosen.format == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--chat: wanted a --format, one of ", ChatFormatNames(),
        ", since the run was trained on segments, whose format nobody knows; found none"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ChatTokenizer> chat,
                   ChatTokenizer::Create(model.tokenizer(), std::move(chosen)));
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({ChatRole::kSystem, options.system});
  messages.push_back({ChatRole::kUser, options.chat});
  return chat->NewEncoder()->EncodeQuestion(std::move(messages));
}

// The tokens before those that are to be written.
absl::StatusOr<EncodedQuestion> EncodeBeginning(const GenerateOptions& options,
                                                const InferenceModel& model) {
  if (!options.chat.empty()) return EncodeChat(options, model);
  const Tokenizer& tokenizer = model.tokenizer();
  EncodedQuestion beginning = {.ids = tokenizer.prefix()};
  // Without a prompt, the text begins after a line break.
  const std::string prompt = options.prompt.empty() ? "\n" : options.prompt;
  RETURN_IF_ERROR(tokenizer.NewEncoder()->Encode(prompt, beginning.ids));
  return beginning;
}

}  // namespace

absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(InferenceModel model,
                   InferenceModel::Load(options.model, InferenceModel::Use::kGrowing, backend));
  const Tokenizer& tokenizer = model.tokenizer();
  ASSIGN_OR_RETURN(EncodedQuestion beginning, EncodeBeginning(options, model));
  std::vector<int32_t> text = std::move(beginning.ids);
  TextStream readable(tokenizer, text);
  StopTexts stop(options.stop);
  for (int64_t i = 0; i < options.tokens && !stop.stopped(); ++i) {
    const double u = Uniform(options.seed, HashName("generate"), uint64_t(i));
    const auto likely = model.After(text).first(size_t(tokenizer.vocab()));
    const int32_t next = int32_t(SampleToken(likely, options.sampling, u));
    if (next == beginning.end) break;
    text.push_back(next);
    ASSIGN_OR_RETURN(const std::string more, readable.Add(text.back()));
    write(stop.Add(more));
  }
  ASSIGN_OR_RETURN(const std::string rest, readable.End());
  write(stop.Add(rest));
  write(stop.End());
  return absl::OkStatus();
}

}  // namespace trainyard
