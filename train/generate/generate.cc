#include "train/generate/generate.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/chat/chat_encoder.h"
#include "train/chat/json_line.h"
#include "train/generate/chats.h"
#include "train/generate/lines.h"
#include "train/generate/stop_texts.h"
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

// Writes what follows the beginning.
absl::Status Continue(const GenerateOptions& options, EncodedPrompt beginning,
                      InferenceModel& model, const std::function<void(absl::string_view)>& write) {
  const Tokenizer& tokenizer = model.tokenizer();
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

}  // namespace

absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(InferenceModel model,
                   InferenceModel::Load(options.model, InferenceModel::Use::kGrowing, backend));
  ASSIGN_OR_RETURN(EncodedPrompt beginning, EncodeBeginning(options, model));
  return Continue(options, std::move(beginning), model, write);
}

absl::Status AnswerChats(const GenerateOptions& options, const std::string& path,
                         const Backend& backend,
                         const std::function<void(const std::string&)>& write) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(InferenceModel model,
                   InferenceModel::Load(options.model, InferenceModel::Use::kGrowing, backend));
  ASSIGN_OR_RETURN(const std::unique_ptr<ChatTokenizer> chat,
                   AskingTokenizer(model, options.format));
  const std::unique_ptr<ChatEncoder> encoder = chat->NewEncoder();
  return ForEachLine(path, [&](absl::string_view line) -> absl::Status {
    ASSIGN_OR_RETURN(std::vector<ChatMessage> messages, ReadChatQuestion(line));
    ASSIGN_OR_RETURN(nlohmann::json json, ReadJsonLine(line));
    if (json.contains("generated")) {
      return absl::InvalidArgumentError("generated: wanted no such field, found it; it is added");
    }
    ASSIGN_OR_RETURN(EncodedPrompt question, encoder->EncodeQuestion(std::move(messages)));
    if (int64_t(question.ids.size()) > model.window()) {
      return absl::InvalidArgumentError(
          absl::StrCat("wanted a question of at most ", model.window(),
                       " tokens, the window; found ", question.ids.size(),
                       "; --window gives the model a longer one, up to the model's longest"));
    }
    std::string answer;
    RETURN_IF_ERROR(Continue(options, std::move(question), model,
                             [&](absl::string_view more) { absl::StrAppend(&answer, more); }));
    json["generated"] = std::move(answer);
    write(JsonText(json));
    return absl::OkStatus();
  });
}

}  // namespace trainyard
