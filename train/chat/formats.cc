#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/shown.h"
#include "train/chat/chat_format.h"
#include "train/chat/render.h"

namespace trainyard {
namespace {

constexpr char kRefusesSystem[] =
    "the template of the model refuses it; begin the first question with what the system says";
constexpr char kDropsSystem[] =
    "the template of the model leaves it out unless the user speaks last; begin a question with "
    "what the system says";
constexpr char kLongDefault[] =
    "without it, the template of the model writes a long text with the current date";

constexpr ChatFormat kFormats[] = {
    {.name = "chatml",
     .models = "OpenHermes 2.5",
     .render = RenderChatMl,
     .templates = {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3",
                   "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e"}},
    {.name = "llama2",
     .models = "Llama 2 Chat",
     .render = RenderLlama2,
     .begin = "<s>",
     .end = "</s>",
     .templates = {"e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf"}},
    {.name = "llama3",
     .models = "Llama 3 Instruct",
     .render = RenderLlama3,
     .begin = "<|begin_of_text|>",
     .templates = {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122"}},
    {.name = "llama3.1",
     .models = "Llama 3.1 and 3.3 Instruct",
     .render = RenderLlama31,
     .begin = "<|begin_of_text|>",
     .templates = {"93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7"}},
    {.name = "llama3.2",
     .models = "Llama 3.2 Instruct",
     .render = RenderLlama32,
     .begin = "<|begin_of_text|>",
     .date_form = "%d %b %Y",
     .templates = {"d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f"}},
    {.name = "qwen2",
     .models = "Qwen 2 Instruct",
     .render = RenderQwen2,
     .templates = {"793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb"}},
    {.name = "qwen2.5",
     .models = "Qwen 2.5 Instruct",
     .render = RenderQwen25,
     .templates = {"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a"}},
    {.name = "qwen3",
     .models = "Qwen 3",
     .render = RenderQwen3,
     .reasoning_field = "reasoning_content",
     .templates = {"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5",
                   "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8"}},
    {.name = "qwen3-instruct",
     .models = "Qwen 3 Instruct 2507",
     .render = RenderChatMl,
     .templates = {"64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326"}},
    {.name = "mistral",
     .models = "Mistral 7B Instruct 0.1 and 0.2",
     .render = RenderMistral,
     .begin = "<s>",
     .end = "</s>",
     .no_system = kRefusesSystem,
     .templates = {"26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7"}},
    {.name = "mistral-nemo",
     .models = "Mistral Nemo Instruct 2407",
     .render = RenderTekken,
     .begin = "<s>",
     .end = "</s>",
     .no_system = kDropsSystem,
     .templates = {"e7deee034838db2bfc7487788a3013d8a307ab69f72f3c54a85f06fd76007d4e"}},
    {.name = "mistral-small",
     .models = "Mistral Small 3.2 Instruct 2506",
     .render = RenderTekken,
     .begin = "<s>",
     .end = "</s>",
     .needs_system = kLongDefault,
     .templates = {"d990bccdaaa20611e261434bf60bce767b03d8ee1f1d9b5cd0742b1cc96066b9"}},
    {.name = "gemma",
     .models = "Gemma and Gemma 2",
     .render = RenderGemma,
     .begin = "<bos>",
     .no_system = kRefusesSystem,
     .templates = {"ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6"}},
    {.name = "gemma3",
     .models = "Gemma 3",
     .render = RenderGemma,
     .begin = "<bos>",
     .templates = {"8d9e3a3c114fb2053ec500184677af4f7e5f8ec2582443cd535834e68b3ade29"}},
    {.name = "deepseek-v3",
     .models = "DeepSeek V3",
     .render = RenderDeepSeek,
     .begin = "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
     .templates = {"1abb11869cb1ab4f7003d1c40de7c11b046c7844da22a67e6154d29e7d14d994"}},
    {.name = "deepseek-r1",
     .models = "DeepSeek R1 and its distilled models",
     .render = RenderDeepSeekR1,
     .begin = "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
     .templates = {"563b1ce7d61d50a9b4c7439a912a1116f095b712df5b5e4d3e1116049874eb64",
                   "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f"}},
    {.name = "phi3",
     .models = "Phi 3 mini",
     .render = RenderPhi3,
     .end = "<|endoftext|>",
     .templates = {"dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa"}},
    {.name = "phi3.5",
     .models = "Phi 3.5 mini",
     .render = RenderPhi35,
     .end = "<|endoftext|>",
     .templates = {"78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90"}},
    {.name = "phi4",
     .models = "Phi 4",
     .render = RenderPhi4,
     .templates = {"fe4120415a3858b873955c92ce3a103a95bc97c2cb00b72e62659aaf0f891ee5",
                   "a41fb8727c4f1e722e53cb1ea935038a1177b8bdf09387f3b048f9da5255ef3e"}},
    {.name = "phi4-mini",
     .models = "Phi 4 mini",
     .render = RenderPhi4Mini,
     .end = "<|endoftext|>",
     .templates = {"febf589225c9728ab791f52e8897d7607a823d45368f0a4c92fa68997b40cce9"}},
    {.name = "gpt-oss",
     .models = "gpt-oss 20b and 120b",
     .render = RenderGptOss,
     .date_form = "%Y-%m-%d",
     .reasoning_field = "thinking",
     .no_answer = "<|channel|>",
     .templates = {"a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146"}},
};

}  // namespace

absl::string_view Name(ChatRole role) {
  return role == ChatRole::kSystem ? "system" : role == ChatRole::kUser ? "user" : "assistant";
}

std::span<const ChatFormat> AllChatFormats() { return kFormats; }

const ChatFormat* FindChatFormat(absl::string_view name) {
  for (const ChatFormat& format : kFormats) {
    if (name == format.name) return &format;
  }
  return nullptr;
}

std::string ChatFormatNames() {
  return absl::StrJoin(kFormats, ", ", [](std::string* out, const ChatFormat& format) {
    absl::StrAppend(out, format.name);
  });
}

absl::Status CheckFits(const ChatFormat& format, std::span<const ChatMessage> messages) {
  CHECK(!messages.empty());
  const bool has_system = messages[0].role == ChatRole::kSystem;
  if (has_system && *format.no_system != '\0') {
    return absl::InvalidArgumentError(absl::StrCat("message 1: wanted no message of the system in ",
                                                   format.name, ", found one; ", format.no_system));
  }
  if (!has_system && *format.needs_system != '\0') {
    return absl::InvalidArgumentError(absl::StrCat("message 1: wanted the role system in ",
                                                   format.name, ", found ", Name(messages[0].role),
                                                   "; ", format.needs_system));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (!message.reasoning_field.empty() && message.reasoning_field != format.reasoning_field) {
      return absl::InvalidArgumentError(absl::StrCat(
          "message ", i + 1, ": wanted no ", message.reasoning_field, " in ", format.name,
          *format.reasoning_field == '\0'
              ? "; the format writes no thoughts"
              : absl::StrCat("; the format writes the field ", format.reasoning_field)));
    }
    if (*format.no_answer == '\0' || message.role != ChatRole::kAssistant) continue;
    if (!absl::StrContains(message.content, format.no_answer) &&
        !absl::StrContains(message.reasoning, format.no_answer)) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("message ", i + 1, ": wanted no ", format.no_answer, " in an answer in ",
                     format.name, ", found one; the format writes it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DateOf(const ChatFormat& format, const std::string& date) {
  const bool wants = *format.date_form != '\0';
  if (!wants && date.empty()) return std::string();
  if (!wants)
    return absl::InvalidArgumentError(
        absl::StrCat("wanted no date in the format ", format.name, ", found ", Shown(date)));
  absl::CivilDay day;
  if (date.size() != 10 || !absl::ParseCivilTime(date, &day)) {
    return absl::InvalidArgumentError(absl::StrCat("wanted a date as 2026-01-31, which the format ",
                                                   format.name, " writes, found ",
                                                   date.empty() ? "none" : Shown(date)));
  }
  return absl::FormatTime(format.date_form, absl::FromCivil(day, absl::UTCTimeZone()),
                          absl::UTCTimeZone());
}

}  // namespace trainyard
