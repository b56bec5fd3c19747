#include "train/generate/generate.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "train/chat/chat_encoder.h"
#include "train/generate/chats.h"
#include "train/generate/continue_prompts.h"
#include "train/generate/lines.h"
#include "train/generate/prompt_lines.h"

namespace trainyard {
namespace {

absl::Status Validate(const GenerateOptions& options) {
  if (options.tokens < 0 || options.tokens > kMaxGeneratedTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: wanted 0 to ", kMaxGeneratedTokens, ", found ", options.tokens));
  }
  return Check(options.sampling);
}

// For questions, which need a format.
absl::StatusOr<std::unique_ptr<ChatTokenizer>> AskingTokenizer(const InferenceModel& model,
                                                               const ChatFormatChoice& format) {
  ASSIGN_OR_RETURN(std::unique_ptr<ChatTokenizer> chat, ChatTokenizerOf(model, format));
  if (chat->chosen().format != nullptr) return chat;
  return absl::InvalidArgumentError(absl::StrCat(
      "wanted a --format of chats, one of ", ChatFormatNames(),
      ", since the run was trained on segments, whose format nobody knows; found none"));
}

absl::StatusOr<EncodedPrompt> EncodeChat(const GenerateOptions& options,
                                         const InferenceModel& model) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChatTokenizer> chat,
                   AskingTokenizer(model, options.format));
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({ChatRole::kSystem, options.system});
  messages.push_back({ChatRole::kUser, options.chat});
  return chat->NewEncoder()->EncodeQuestion(std::move(messages));
}

// The tokens before those that are to be written.
absl::StatusOr<EncodedPrompt> EncodeBeginning(const GenerateOptions& options,
                                              const InferenceModel& model) {
  if (!options.chat.empty()) return EncodeChat(options, model);
  return EncodeText(model.tokenizer(), options.prompt);
}

ContinuationOptions ContinuationOf(const GenerateOptions& options) {
  return {.tokens = options.tokens,
          .sampling = options.sampling,
          .stop = options.stop,
          .seed = options.seed,
          .number = 0,
          .cancelled = options.cancelled};
}

// Loads a model that goes on with so many prompts.
absl::StatusOr<InferenceModel> LoadFor(const GenerateOptions& options, size_t prompts,
                                       const Backend& backend) {
  if (options.batch < 0 || options.batch > InferenceModel::kMostTexts) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch: wanted 1 to ", InferenceModel::kMostTexts, ", found ", options.batch));
  }
  InferenceModel::Options model = options.model;
  model.fewer_texts = options.batch == 0;
  model.texts =
      std::clamp<int64_t>(int64_t(prompts), 1, options.batch == 0 ? kDefaultBatch : options.batch);
  return InferenceModel::Load(model, InferenceModel::Use::kGrowing, backend);
}

// Encodes the lines. The tokenizer of chats is opened for the first line that has messages.
absl::StatusOr<std::vector<EncodedPrompt>> EncodeLines(const GenerateOptions& options,
                                                       const InferenceModel& model,
                                                       std::vector<PromptLine>& lines) {
  std::unique_ptr<ChatTokenizer> chat;
  std::unique_ptr<ChatEncoder> encoder;
  const auto encode = [&](PromptLine& line) -> absl::StatusOr<EncodedPrompt> {
    if (line.messages.empty()) return EncodeText(model.tokenizer(), line.text);
    if (chat == nullptr) {
      ASSIGN_OR_RETURN(chat, AskingTokenizer(model, options.format));
      encoder = chat->NewEncoder();
    }
    ASSIGN_OR_RETURN(EncodedPrompt question, encoder->EncodeQuestion(std::move(line.messages)));
    if (int64_t(question.ids.size()) <= model.window()) return question;
    return absl::InvalidArgumentError(absl::StrCat(
        "wanted a question of at most ", model.window(), " tokens, the window; found ",
        question.ids.size(), "; --window gives the model a longer one, up to the model's longest"));
  };
  std::vector<EncodedPrompt> prompts;
  for (PromptLine& line : lines) {
    absl::StatusOr<EncodedPrompt> prompt = encode(line);
    if (!prompt.ok()) return At(line.place, prompt.status());
    prompts.push_back(*std::move(prompt));
  }
  return prompts;
}

// Goes on with all lines, and calls `write` with the object of each, in their order.
absl::Status ContinueLines(const GenerateOptions& options, std::vector<PromptLine> lines,
                           Draws draws, const Backend& backend,
                           const std::function<void(nlohmann::json&, const WrittenText&)>& write) {
  ASSIGN_OR_RETURN(InferenceModel model, LoadFor(options, lines.size(), backend));
  ASSIGN_OR_RETURN(std::vector<EncodedPrompt> prompts, EncodeLines(options, model, lines));
  return ContinuePrompts(
      model, std::move(prompts), ContinuationOf(options), draws,
      [&](size_t i, const WrittenText& continued) { write(lines[i].object, continued); });
}

}  // namespace

absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(InferenceModel model, LoadFor(options, 1, backend));
  ASSIGN_OR_RETURN(EncodedPrompt beginning, EncodeBeginning(options, model));
  Continuation text(model.tokenizer(), std::move(beginning), ContinuationOf(options), write);
  RETURN_IF_ERROR(text.Begin());
  while (!text.ended()) {
    const std::span<const int32_t> ids = text.ids();
    model.Read({&ids, 1});
    RETURN_IF_ERROR(text.Add(model.After(0)));
  }
  return absl::OkStatus();
}

absl::Status GenerateEach(const GenerateOptions& options, const Prompts& prompts,
                          const Backend& backend,
                          const std::function<void(const std::string&)>& write) {
  RETURN_IF_ERROR(Validate(options));
  std::vector<PromptLine> lines;
  for (const std::string& text : prompts.texts) {
    lines.push_back({.object = {{"prompt", text}},
                     .place = absl::StrCat("prompt ", lines.size() + 1),
                     .text = text});
  }
  if (!prompts.path.empty()) {
    ASSIGN_OR_RETURN(lines, ReadPromptLines(prompts.path, PromptMeans::kText,
                                            {"generated", "tokens", "ended_by"}));
  }
  if (lines.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(prompts.path, ": wanted prompts, found none"));
  }
  return ContinueLines(options, std::move(lines), Draws::kOwn, backend,
                       [&](nlohmann::json& object, const WrittenText& continued) {
                         object["generated"] = continued.text;
                         object["tokens"] = continued.tokens;
                         object["ended_by"] = Name(continued.ending);
                         write(JsonText(object));
                       });
}

absl::Status AnswerChats(const GenerateOptions& options, const std::string& path,
                         const Backend& backend,
                         const std::function<void(const std::string&)>& write) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(std::vector<PromptLine> lines,
                   ReadPromptLines(path, PromptMeans::kQuestion, {"generated"}));
  return ContinueLines(options, std::move(lines), Draws::kSame, backend,
                       [&](nlohmann::json& object, const WrittenText& continued) {
                         object["generated"] = continued.text;
                         write(JsonText(object));
                       });
}

}  // namespace trainyard
