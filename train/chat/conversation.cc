#include "train/chat/conversation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "common/violations.h"
#include "train/chat/json_line.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr char kByteOrderMark[] = "\xEF\xBB\xBF";
constexpr char kBySegments[] =
    "; a program of yours can write such a conversation as segments: [{text, train}]";

template <typename... Parts>
absl::Status Bad(const Parts&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

// "an array", "null".
std::string Kind(const Json& value) {
  if (value.is_null()) return "null";
  const bool vowel = value.is_array() || value.is_object();
  return absl::StrCat(vowel ? "an " : "a ", value.type_name());
}

std::vector<std::string> FieldsOf(const Json& object) {
  std::vector<std::string> fields;
  for (const auto& [field, value] : object.items()) fields.push_back(VisibleUtf8(field));
  return fields;
}

std::string ShownFields(const Json& object) {
  constexpr size_t kMost = 8;
  std::vector<std::string> fields = FieldsOf(object);
  const bool more = fields.size() > kMost;
  if (more) fields.resize(kMost);
  for (std::string& field : fields) field = Shown(field);
  return absl::StrCat(absl::StrJoin(fields, ", "), more ? " and more" : "");
}

// What stands at a field, for an error.
std::string Found(const Json& object, const char* field) {
  const auto value = object.find(field);
  if (value != object.end()) return Kind(*value);
  const std::string like = NearestName(field, FieldsOf(object));
  return like.empty() ? "no such field" : absl::StrCat("no such field, but ", like);
}

absl::Status CheckBytes(absl::string_view line) {
  if (line.size() > kMostLineBytes) {
    return Bad("wanted a line of at most ", kMostLineBytes, " bytes, found ", line.size());
  }
  if (absl::StartsWith(line, kByteOrderMark)) {
    return Bad(
        "wanted JSON, found a byte-order mark before it; save the file as UTF-8 without one");
  }
  if (const size_t at = line.find('\0'); at != absl::string_view::npos) {
    return Bad("wanted a text, found the byte 0 at column ", at + 1);
  }
  if (!IsUtf8(line)) return Bad("wanted UTF-8, found bytes that are none");
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextOf(const Json& object, const char* field, absl::string_view where) {
  const auto value = object.find(field);
  if (value != object.end() && value->is_string()) {
    std::string text = value->get<std::string>();
    if (text.find('\0') == text.npos) return text;
    return Bad(where, field, ": wanted a text, found the byte 0 in it");
  }
  const bool has_parts = value != object.end() && value->is_array();
  return Bad(where, field, ": wanted a text, found ", Found(object, field),
             has_parts ? kBySegments : "");
}

std::optional<ChatRole> RoleNamed(absl::string_view name, bool of_sharegpt) {
  if (name == "system") return ChatRole::kSystem;
  if (name == "user" || (of_sharegpt && name == "human")) return ChatRole::kUser;
  if (name == "assistant" || (of_sharegpt && name == "gpt")) return ChatRole::kAssistant;
  return std::nullopt;
}

// What to do about a name that is none of a role.
std::string NearRole(const std::string& name, bool of_sharegpt) {
  const std::vector<std::string> names =
      of_sharegpt ? std::vector<std::string>{"system", "human", "gpt"}
                  : std::vector<std::string>{"system", "user", "assistant"};
  const std::string nearest = NearestName(absl::AsciiStrToLower(name), names);
  if (!nearest.empty()) return absl::StrCat("; nearest ", nearest);
  if (!of_sharegpt && RoleNamed(name, /*of_sharegpt=*/true)) {
    return "; human and gpt are the roles of conversations: [{from, value}]";
  }
  return kBySegments;
}

// The fields that would change what is trained, and that no format writes.
absl::Status CheckNoOther(const Json& object, absl::string_view where) {
  for (const char* field :
       {"tools", "tool_calls", "function_call", "functions", "weight", "train", "training"}) {
    const auto value = object.find(field);
    if (value == object.end() || value->is_null()) continue;
    if (value->is_array() && value->empty()) continue;
    return Bad(where, field, ": wanted no such field, found ", Kind(*value), kBySegments);
  }
  return absl::OkStatus();
}

// The same of a line.
absl::Status CheckMeaning(const Json& json) {
  RETURN_IF_ERROR(CheckNoOther(json, ""));
  const auto system = json.find("system");
  if (system == json.end() || system->is_null()) return absl::OkStatus();
  return Bad("system: wanted no such field, found ", Kind(*system),
             "; put it first among the messages, with the role system");
}

absl::Status ReadReasoning(const Json& object, absl::string_view where, ChatMessage& message) {
  for (const char* field : {"reasoning_content", "thinking"}) {
    const auto value = object.find(field);
    if (value == object.end() || value->is_null()) continue;
    if (message.role != ChatRole::kAssistant || !message.reasoning_field.empty()) {
      return Bad(where, field, ": wanted one text of an assistant, found it ",
                 message.role != ChatRole::kAssistant ? "in a message of another role"
                                                      : "beside " + message.reasoning_field);
    }
    ASSIGN_OR_RETURN(message.reasoning, TextOf(object, field, where));
    message.reasoning_field = field;
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatMessage> ReadMessage(const Json& json, bool of_sharegpt,
                                        absl::string_view path) {
  if (!json.is_object()) return Bad(path, ": wanted an object, found ", Kind(json));
  const std::string where = absl::StrCat(path, ".");
  const char* const role_field = of_sharegpt ? "from" : "role";
  ASSIGN_OR_RETURN(const std::string name, TextOf(json, role_field, where));
  const std::optional<ChatRole> role = RoleNamed(name, of_sharegpt);
  if (!role) {
    return Bad(where, role_field, ": wanted ",
               of_sharegpt ? "system, human or gpt" : "system, user or assistant", ", found ",
               Shown(name), NearRole(name, of_sharegpt));
  }
  RETURN_IF_ERROR(CheckNoOther(json, where));
  ChatMessage message{.role = *role};
  ASSIGN_OR_RETURN(message.content, TextOf(json, of_sharegpt ? "value" : "content", where));
  RETURN_IF_ERROR(ReadReasoning(json, where, message));
  return message;
}

absl::StatusOr<std::vector<ChatMessage>> ReadMessages(const Json& array, const char* field) {
  if (!array.is_array() || array.empty()) {
    return Bad(field, ": wanted an array of messages, found ",
               array.is_array() ? "an empty one" : Kind(array));
  }
  const bool of_sharegpt = absl::string_view(field) == "conversations";
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < array.size(); ++i) {
    ASSIGN_OR_RETURN(ChatMessage message,
                     ReadMessage(array[i], of_sharegpt, absl::StrCat(field, "[", i, "]")));
    messages.push_back(std::move(message));
  }
  return messages;
}

absl::StatusOr<ChatSegment> ReadSegment(const Json& json, absl::string_view path) {
  if (!json.is_object()) return Bad(path, ": wanted an object, found ", Kind(json));
  const std::string where = absl::StrCat(path, ".");
  ChatSegment segment;
  ASSIGN_OR_RETURN(segment.text, TextOf(json, "text", where));
  const auto train = json.find("train");
  if (train == json.end() || !train->is_boolean()) {
    return Bad(where, "train: wanted true or false, found ", Found(json, "train"));
  }
  segment.train = train->get<bool>();
  for (const auto& [field, value] : json.items()) {
    if (field == "text" || field == "train") continue;
    return Bad(where, VisibleUtf8(field), ": wanted text and train alone, found this field, too");
  }
  return segment;
}

absl::StatusOr<std::vector<ChatSegment>> ReadSegments(const Json& array) {
  if (!array.is_array() || array.empty() || array.size() > kMostChatSegments) {
    return Bad("segments: wanted an array of 1 to ", kMostChatSegments, " segments, found ",
               array.is_array() ? absl::StrCat(array.size()) : Kind(array));
  }
  std::vector<ChatSegment> segments;
  for (size_t i = 0; i < array.size(); ++i) {
    ASSIGN_OR_RETURN(ChatSegment segment, ReadSegment(array[i], absl::StrCat("segments[", i, "]")));
    segments.push_back(std::move(segment));
  }
  const auto counts = [](const ChatSegment& one) { return one.train && !one.text.empty(); };
  if (std::any_of(segments.begin(), segments.end(), counts)) return segments;
  return Bad("segments: wanted a segment with a text and train: true, found none");
}

// The messages of a prompt and its completion.
absl::StatusOr<std::vector<ChatMessage>> ReadPair(const Json& json) {
  std::vector<ChatMessage> messages = {{.role = ChatRole::kUser}, {.role = ChatRole::kAssistant}};
  ASSIGN_OR_RETURN(messages[0].content, TextOf(json, "prompt", ""));
  ASSIGN_OR_RETURN(messages[1].content, TextOf(json, "completion", ""));
  return messages;
}

bool operator==(const ChatMessage& a, const ChatMessage& b) {
  return a.role == b.role && a.content == b.content && a.reasoning == b.reasoning;
}

// A field of a pair that has a text or messages.
absl::StatusOr<std::vector<ChatMessage>> ReadSide(const Json& json, const char* field,
                                                  ChatRole of_text) {
  const auto value = json.find(field);
  if (value != json.end() && value->is_array()) return ReadMessages(*value, field);
  ASSIGN_OR_RETURN(std::string text, TextOf(json, field, ""));
  return std::vector<ChatMessage>{{.role = of_text, .content = std::move(text)}};
}

// Puts the prompt before an answer. Whole conversations are left as they are.
absl::Status AddPrompt(const Json& json, std::vector<ChatMessage>& side, const char* field) {
  if (side.front().role != ChatRole::kAssistant) return absl::OkStatus();
  if (!json.contains("prompt")) {
    return Bad("prompt: wanted it before an answer, found no such field; or ", field,
               " as a whole conversation, which begins with the user or the system");
  }
  ASSIGN_OR_RETURN(std::vector<ChatMessage> messages, ReadSide(json, "prompt", ChatRole::kUser));
  messages.insert(messages.end(), std::make_move_iterator(side.begin()),
                  std::make_move_iterator(side.end()));
  side = std::move(messages);
  return absl::OkStatus();
}

bool IsBlank(absl::string_view text) {
  return text.find_first_not_of(" \t\r\n") == absl::string_view::npos;
}

// The fields of a line that say what it is.
std::vector<std::string> KindsOf(const Json& json) {
  std::vector<std::string> kinds;
  for (const char* kind : {"messages", "conversations", "completion", "segments"}) {
    if (json.contains(kind)) kinds.push_back(kind);
  }
  return kinds;
}

absl::StatusOr<ChatLine> ReadChat(const Json& json) {
  const std::vector<std::string> kinds = KindsOf(json);
  if (kinds.size() != 1) {
    return Bad(
        "wanted one of messages, conversations, completion with prompt, and segments, found ",
        !kinds.empty() ? absl::StrCat(kinds[0], " and ", kinds[1])
        : json.empty() ? "no field"
                       : ShownFields(json));
  }
  ChatLine read;
  if (kinds[0] == "segments") {
    ASSIGN_OR_RETURN(read.segments, ReadSegments(json["segments"]));
    return read;
  }
  RETURN_IF_ERROR(CheckMeaning(json));
  if (kinds[0] == "completion") {
    ASSIGN_OR_RETURN(read.messages, ReadPair(json));
  } else {
    ASSIGN_OR_RETURN(read.messages, ReadMessages(json[kinds[0]], kinds[0].c_str()));
  }
  return read;
}

}  // namespace

absl::StatusOr<ChatLine> ReadChatLine(absl::string_view line) {
  RETURN_IF_ERROR(CheckBytes(line));
  ASSIGN_OR_RETURN(const Json json, ReadJsonLine(line));
  return ReadChat(json);
}

absl::StatusOr<std::vector<ChatMessage>> ReadChatQuestion(absl::string_view line) {
  RETURN_IF_ERROR(CheckBytes(line));
  ASSIGN_OR_RETURN(const Json json, ReadJsonLine(line));
  ChatLine read;
  std::vector<ChatMessage>& messages = read.messages;
  if (json.contains("chosen")) {
    ASSIGN_OR_RETURN(messages, ReadSide(json, "chosen", ChatRole::kAssistant));
    RETURN_IF_ERROR(AddPrompt(json, messages, "chosen"));
  } else if (json.contains("prompt") && KindsOf(json).empty()) {
    ASSIGN_OR_RETURN(messages, ReadSide(json, "prompt", ChatRole::kUser));
  } else {
    ASSIGN_OR_RETURN(read, ReadChat(json));
  }
  RETURN_IF_ERROR(CheckMeaning(json));
  if (!messages.empty() && messages.back().role == ChatRole::kAssistant) messages.pop_back();
  if (!messages.empty() && messages.back().role == ChatRole::kUser) return std::move(messages);
  return Bad(
      "wanted a conversation with a question of the user at the end, or before the last "
      "answer; found ",
      read.segments.empty() ? "none" : "segments");
}

absl::StatusOr<ChatPair> ReadChatPair(absl::string_view line) {
  RETURN_IF_ERROR(CheckBytes(line));
  ASSIGN_OR_RETURN(const Json json, ReadJsonLine(line));
  RETURN_IF_ERROR(CheckMeaning(json));
  ChatPair pair;
  for (const auto& [field, side] :
       {std::pair("chosen", &pair.chosen), std::pair("rejected", &pair.rejected)}) {
    ASSIGN_OR_RETURN(*side, ReadSide(json, field, ChatRole::kAssistant));
    RETURN_IF_ERROR(AddPrompt(json, *side, field));
    const absl::Status turns = CheckTurns(*side);
    if (!turns.ok()) return Bad(field, ": ", turns.message());
  }
  // The last answers are compared even where they are the same.
  const size_t most = std::min(pair.chosen.size(), pair.rejected.size()) - 1;
  size_t same = 0;
  while (same < most && pair.chosen[same] == pair.rejected[same]) ++same;
  const auto of_assistant = [](const ChatMessage& one) { return one.role == ChatRole::kAssistant; };
  const auto common = std::span(pair.chosen).first(same);
  if (common.empty() || common.back().role == ChatRole::kSystem) {
    return Bad("rejected: wanted the beginning of chosen up to a question, found another message ",
               same + 1);
  }
  pair.answers_before = size_t(std::count_if(common.begin(), common.end(), of_assistant));
  return pair;
}

absl::Status CheckTurns(const std::vector<ChatMessage>& messages) {
  CHECK(!messages.empty());
  const size_t first = messages[0].role == ChatRole::kSystem ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    const ChatRole wanted = (i - first) % 2 == 0 ? ChatRole::kUser : ChatRole::kAssistant;
    if (messages[i].role != wanted) {
      return Bad("message ", i + 1, ": wanted the role ", Name(wanted), ", found ",
                 Name(messages[i].role),
                 "; user and assistant take turns, after at most one message of the system");
    }
    if (wanted == ChatRole::kAssistant && IsBlank(messages[i].content)) {
      return Bad("message ", i + 1, ": wanted an answer, found an empty one");
    }
  }
  if (messages.back().role == ChatRole::kAssistant) return absl::OkStatus();
  return Bad("message ", messages.size(), ": wanted an answer of the assistant at the end, found ",
             Name(messages.back().role));
}

}  // namespace trainyard
