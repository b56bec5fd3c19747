// The texts of the formats: what the chat templates of published models make of conversations
// without tools. formats.cc says which models have which.

#pragma once

#include <span>

#include "train/chat/chat_format.h"

namespace trainyard {

void RenderChatMl(std::span<const ChatMessage> messages, const ChatSettings& settings,
                  ChatScript& script);
void RenderQwen2(std::span<const ChatMessage> messages, const ChatSettings& settings,
                 ChatScript& script);
void RenderQwen25(std::span<const ChatMessage> messages, const ChatSettings& settings,
                  ChatScript& script);
void RenderQwen3(std::span<const ChatMessage> messages, const ChatSettings& settings,
                 ChatScript& script);
void RenderLlama3(std::span<const ChatMessage> messages, const ChatSettings& settings,
                  ChatScript& script);
void RenderLlama32(std::span<const ChatMessage> messages, const ChatSettings& settings,
                   ChatScript& script);
void RenderLlama31(std::span<const ChatMessage> messages, const ChatSettings& settings,
                   ChatScript& script);
void RenderLlama2(std::span<const ChatMessage> messages, const ChatSettings& settings,
                  ChatScript& script);
void RenderMistral(std::span<const ChatMessage> messages, const ChatSettings& settings,
                   ChatScript& script);
void RenderTekken(std::span<const ChatMessage> messages, const ChatSettings& settings,
                  ChatScript& script);
void RenderGemma(std::span<const ChatMessage> messages, const ChatSettings& settings,
                 ChatScript& script);
void RenderDeepSeek(std::span<const ChatMessage> messages, const ChatSettings& settings,
                    ChatScript& script);
void RenderDeepSeekR1(std::span<const ChatMessage> messages, const ChatSettings& settings,
                      ChatScript& script);
void RenderPhi3(std::span<const ChatMessage> messages, const ChatSettings& settings,
                ChatScript& script);
void RenderPhi35(std::span<const ChatMessage> messages, const ChatSettings& settings,
                 ChatScript& script);
void RenderPhi4Mini(std::span<const ChatMessage> messages, const ChatSettings& settings,
                    ChatScript& script);
void RenderPhi4(std::span<const ChatMessage> messages, const ChatSettings& settings,
                ChatScript& script);
void RenderGptOss(std::span<const ChatMessage> messages, const ChatSettings& settings,
                  ChatScript& script);

}  // namespace trainyard
