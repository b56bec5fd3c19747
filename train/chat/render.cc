#include "train/chat/render.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/utf8.h"

namespace trainyard {
namespace {

using Messages = std::span<const ChatMessage>;

// What str.strip() of Python removes, and so `trim` of Jinja.
bool IsPythonSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

absl::string_view Trimmed(absl::string_view text) {
  while (!text.empty() && IsPythonSpace(DecodeUtf8(text.data()))) {
    text.remove_prefix(Utf8Bytes(text[0]));
  }
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (uint8_t(text[last]) & 0xC0) == 0x80) --last;
    if (!IsPythonSpace(DecodeUtf8(text.data() + last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

absl::string_view WithoutBreaksBefore(absl::string_view text) {
  while (absl::ConsumePrefix(&text, "\n")) {
  }
  return text;
}

absl::string_view WithoutBreaksAfter(absl::string_view text) {
  while (absl::ConsumeSuffix(&text, "\n")) {
  }
  return text;
}

bool IsAnswer(const ChatMessage& message) { return message.role == ChatRole::kAssistant; }

// Takes the message of the system from the front.
std::optional<absl::string_view> TakeSystem(Messages& messages) {
  if (messages.empty() || messages[0].role != ChatRole::kSystem) return std::nullopt;
  const absl::string_view system = messages[0].content;
  messages = messages.subspan(1);
  return system;
}

// --- ChatML: <|im_start|>ROLE \n CONTENT<|im_end|> \n

void ChatMlTurn(absl::string_view role, absl::string_view content, bool counts,
                ChatScript& script) {
  script.Token("<|im_start|>");
  script.Text(absl::StrCat(role, "\n"));
  script.Text(content, counts);
  script.Token("<|im_end|>", counts);
  script.Text("\n");
}

// What the system says where a conversation begins without it.
void RenderQwen(absl::string_view system, Messages messages, ChatScript& script) {
  if (messages[0].role != ChatRole::kSystem) ChatMlTurn("system", system, false, script);
  RenderChatMl(messages, {}, script);
}

// --- Qwen 3: ChatML, with what the model thought before the answers after the last question.

bool IsToolResponse(absl::string_view content) {
  return absl::StartsWith(content, "<tool_response>") &&
         absl::EndsWith(content, "</tool_response>");
}

// The last message of the user counts, and the last message where there is none.
size_t LastQuestion(Messages messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role == ChatRole::kUser && !IsToolResponse(messages[i].content)) return i;
  }
  return messages.size() - 1;
}

struct ThoughtAnswer {
  absl::string_view thought, answer;
};

// An answer may have the thoughts within it, before </think>.
ThoughtAnswer SplitQwenThought(const ChatMessage& message) {
  const absl::string_view content = message.content;
  if (!message.reasoning_field.empty()) return {message.reasoning, content};
  constexpr absl::string_view kBegin = "<think>", kEnd = "</think>";
  const size_t first = content.find(kEnd);
  if (first == absl::string_view::npos) return {"", content};
  absl::string_view thought = WithoutBreaksAfter(content.substr(0, first));
  if (const size_t begin = thought.rfind(kBegin); begin != absl::string_view::npos) {
    thought.remove_prefix(begin + kBegin.size());
  }
  return {WithoutBreaksBefore(thought),
          WithoutBreaksBefore(content.substr(content.rfind(kEnd) + kEnd.size()))};
}

// --- Llama 3: <|start_header_id|>ROLE<|end_header_id|> \n\n CONTENT<|eot_id|>

void Llama3Turn(absl::string_view role, absl::string_view content, bool counts,
                ChatScript& script) {
  script.Token("<|start_header_id|>");
  script.Text(role);
  script.Token("<|end_header_id|>");
  script.Text("\n\n");
  script.Text(content, counts);
  script.Token("<|eot_id|>", counts);
}

// --- DeepSeek: <|User|>QUESTION<|Assistant|>ANSWER, with bars of their own.

void RenderDeepSeekWith(bool thoughts, Messages messages, const ChatSettings& settings,
                        ChatScript& script) {
  script.Token(settings.begin);
  if (const auto system = TakeSystem(messages)) script.Text(*system);
  for (const ChatMessage& message : messages) {
    if (!IsAnswer(message)) {
      script.Token("<\uff5cUser\uff5c>");
      script.Text(message.content);
      continue;
    }
    absl::string_view answer = message.content;
    constexpr absl::string_view kEnd = "</think>";
    const size_t thought = answer.rfind(kEnd);
    if (!thoughts && thought != absl::string_view::npos)
      answer.remove_prefix(thought + kEnd.size());
    script.Token("<\uff5cAssistant\uff5c>");
    script.Text(answer, true);
    script.Token("<\uff5cend\u2581of\u2581sentence\uff5c>", true);
  }
}

// --- Phi: <|ROLE|>CONTENT<|end|>, or ChatML with <|im_sep|>

void PhiTurns(absl::string_view line_break, Messages messages, const ChatSettings& settings,
              ChatScript& script) {
  for (const ChatMessage& message : messages) {
    script.Token(absl::StrCat("<|", Name(message.role), "|>"));
    script.Text(line_break);
    script.Text(message.content, IsAnswer(message));
    script.Token("<|end|>", IsAnswer(message));
    script.Text(line_break);
  }
  script.Token(settings.end);
}

// --- gpt-oss: <|start|>ROLE<|channel|>CHANNEL<|message|>CONTENT<|end|>

// The model begins to write after <|start|>assistant.
void GptOssAnswer(absl::string_view channel, absl::string_view content, absl::string_view end,
                  ChatScript& script) {
  script.Token("<|channel|>", true);
  script.Text(channel, true);
  script.Token("<|message|>", true);
  script.Text(content, true);
  script.Token(end, true);
}

void GptOssOther(absl::string_view role, absl::string_view content, ChatScript& script) {
  script.Token("<|start|>");
  script.Text(role);
  script.Token("<|message|>");
  script.Text(content);
  script.Token("<|end|>");
}

}  // namespace

void ChatScript::Text(absl::string_view text, bool counts) {
  if (!text.empty()) parts_.push_back({std::string(text), counts, false});
}

void ChatScript::Token(absl::string_view token, bool counts) {
  parts_.push_back({std::string(token), counts, true});
}

void RenderChatMl(Messages messages, const ChatSettings&, ChatScript& script) {
  for (const ChatMessage& message : messages) {
    ChatMlTurn(Name(message.role), message.content, IsAnswer(message), script);
  }
}

void RenderQwen2(Messages messages, const ChatSettings&, ChatScript& script) {
  RenderQwen("You are a helpful assistant.", messages, script);
}

void RenderQwen25(Messages messages, const ChatSettings&, ChatScript& script) {
  RenderQwen("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", messages,
             script);
}

void RenderQwen3(Messages messages, const ChatSettings&, ChatScript& script) {
  const size_t question = LastQuestion(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!IsAnswer(messages[i])) {
      ChatMlTurn(Name(messages[i].role), messages[i].content, false, script);
      continue;
    }
    const auto [thought, answer] = SplitQwenThought(messages[i]);
    const bool is_last = i + 1 == messages.size();
    if (i <= question || (!is_last && thought.empty())) {
      ChatMlTurn("assistant", answer, true, script);
      continue;
    }
    ChatMlTurn("assistant",
               absl::StrCat("<think>\n", WithoutBreaksAfter(WithoutBreaksBefore(thought)),
                            "\n</think>\n\n", WithoutBreaksBefore(answer)),
               true, script);
  }
}

void RenderLlama3(Messages messages, const ChatSettings& settings, ChatScript& script) {
  script.Token(settings.begin);
  for (const ChatMessage& message : messages) {
    Llama3Turn(Name(message.role), Trimmed(message.content), IsAnswer(message), script);
  }
}

// The system always says the date.
void RenderLlama32(Messages messages, const ChatSettings& settings, ChatScript& script) {
  script.Token(settings.begin);
  const absl::string_view system = TakeSystem(messages).value_or("");
  Llama3Turn("system",
             absl::StrCat("Cutting Knowledge Date: December 2023\nToday Date: ", settings.date,
                          "\n\n", Trimmed(system)),
             false, script);
  for (const ChatMessage& message : messages) {
    Llama3Turn(Name(message.role), Trimmed(message.content), IsAnswer(message), script);
  }
}

void RenderLlama31(Messages messages, const ChatSettings& settings, ChatScript& script) {
  RenderLlama32(messages, {.begin = settings.begin, .date = "26 Jul 2024"}, script);
}

// --- Llama 2 and Mistral: [INST] QUESTION [/INST] ANSWER</s>

void RenderLlama2(Messages messages, const ChatSettings& settings, ChatScript& script) {
  const std::optional<absl::string_view> system = TakeSystem(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    std::string content = messages[i].content;
    if (i == 0 && system) content = absl::StrCat("<<SYS>>\n", *system, "\n<</SYS>>\n\n", content);
    if (IsAnswer(messages[i])) {
      script.Text(absl::StrCat(" ", Trimmed(content), " "), true);
      script.Token(settings.end, true);
    } else {
      script.Token(settings.begin);
      script.Text(absl::StrCat("[INST] ", Trimmed(content), " [/INST]"));
    }
  }
}

void RenderMistral(Messages messages, const ChatSettings& settings, ChatScript& script) {
  script.Token(settings.begin);
  for (const ChatMessage& message : messages) {
    if (IsAnswer(message)) {
      script.Text(message.content, true);
      script.Token(settings.end, true);
    } else {
      script.Text(absl::StrCat("[INST] ", message.content, " [/INST]"));
    }
  }
}

// The same with tokens in place of texts.
void RenderTekken(Messages messages, const ChatSettings& settings, ChatScript& script) {
  script.Token(settings.begin);
  for (const ChatMessage& message : messages) {
    if (IsAnswer(message)) {
      script.Text(message.content, true);
      script.Token(settings.end, true);
      continue;
    }
    const bool of_system = message.role == ChatRole::kSystem;
    script.Token(of_system ? "[SYSTEM_PROMPT]" : "[INST]");
    script.Text(message.content);
    script.Token(of_system ? "[/SYSTEM_PROMPT]" : "[/INST]");
  }
}

// --- Gemma: <start_of_turn>ROLE \n CONTENT<end_of_turn> \n

void RenderGemma(Messages messages, const ChatSettings& settings, ChatScript& script) {
  script.Token(settings.begin);
  const std::optional<absl::string_view> system = TakeSystem(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool counts = IsAnswer(messages[i]);
    script.Token("<start_of_turn>");
    script.Text(counts ? "model\n" : "user\n");
    if (i == 0 && system) script.Text(absl::StrCat(*system, "\n\n"));
    script.Text(Trimmed(messages[i].content), counts);
    script.Token("<end_of_turn>", counts);
    script.Text("\n");
  }
}

void RenderDeepSeek(Messages messages, const ChatSettings& settings, ChatScript& script) {
  RenderDeepSeekWith(true, messages, settings, script);
}

// The model is not shown what it thought.
void RenderDeepSeekR1(Messages messages, const ChatSettings& settings, ChatScript& script) {
  RenderDeepSeekWith(false, messages, settings, script);
}

void RenderPhi3(Messages messages, const ChatSettings& settings, ChatScript& script) {
  PhiTurns("\n", messages, settings, script);
}

void RenderPhi35(Messages messages, const ChatSettings& settings, ChatScript& script) {
  if (messages[0].role == ChatRole::kSystem && messages[0].content.empty()) {
    messages = messages.subspan(1);
  }
  PhiTurns("\n", messages, settings, script);
}

void RenderPhi4Mini(Messages messages, const ChatSettings& settings, ChatScript& script) {
  PhiTurns("", messages, settings, script);
}

void RenderPhi4(Messages messages, const ChatSettings&, ChatScript& script) {
  for (const ChatMessage& message : messages) {
    script.Token("<|im_start|>");
    script.Text(Name(message.role));
    script.Token("<|im_sep|>");
    script.Text(message.content, IsAnswer(message));
    script.Token("<|im_end|>", IsAnswer(message));
  }
}

void RenderGptOss(Messages messages, const ChatSettings& settings, ChatScript& script) {
  GptOssOther("system",
              absl::StrCat("You are ChatGPT, a large language model trained by OpenAI.\n"
                           "Knowledge cutoff: 2024-06\nCurrent date: ",
                           settings.date,
                           "\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, "
                           "final. Channel must be included for every message."),
              script);
  const absl::string_view system = TakeSystem(messages).value_or("");
  if (!system.empty()) {
    GptOssOther("developer", absl::StrCat("# Instructions\n\n", system, "\n\n"), script);
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (!IsAnswer(message)) {
      GptOssOther("user", message.content, script);
      continue;
    }
    const bool is_last = i + 1 == messages.size();
    script.Token("<|start|>");
    script.Text("assistant");
    if (is_last && !message.reasoning_field.empty()) {
      GptOssAnswer("analysis", message.reasoning, "<|end|>", script);
      script.Token("<|start|>", true);
      script.Text("assistant", true);
    }
    GptOssAnswer("final", message.content, is_last ? "<|return|>" : "<|end|>", script);
  }
}

}  // namespace trainyard
