#include "train/chat/choose_format.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "common/json.h"
#include "common/sha256.h"
#include "common/shown.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostConfigBytes = 64 << 20;
constexpr char kConfigName[] = "tokenizer_config.json";

template <typename... Parts>
absl::Status Refused(const Parts&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

// Null: there is no such file.
absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::string& path,
                                                       const Roots& roots) {
  if (!Exists(path)) return std::nullopt;
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, roots));
  if (file.size() > kMostConfigBytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": wanted at most ", kMostConfigBytes, " bytes, found ", file.size()));
  }
  std::string bytes(size_t(file.size()), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, bytes.data(), bytes.size()));
  return bytes;
}

// An empty object if there is no such file.
absl::StatusOr<Json> ReadConfig(const std::string& path, const Roots& roots) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadIfThere(path, roots));
  if (!text) return Json::object();
  auto json = ParsePythonJson(*text);
  if (!json.ok()) return absl::DataLossError(absl::StrCat(path, ": ", json.status().message()));
  if (!json->is_object()) return absl::DataLossError(path + ": wanted an object of JSON");
  return json;
}

// A token stands as a text, or as an object with the text in "content".
std::string TokenOf(const Json& config, const char* field) {
  const Json value = config.value(field, Json());
  const Json text = value.is_object() ? value.value("content", Json()) : value;
  return text.is_string() ? text.get<std::string>() : "";
}

struct FoundTemplate {
  std::string path;
  std::string text;
};

// The template of a configuration: a text, or that with the name default of several.
std::optional<std::string> TemplateOf(const Json& config) {
  const Json value = config.value("chat_template", Json());
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  for (const Json& one : value) {
    if (!one.is_object() || one.value("name", Json()) != "default") continue;
    const Json text = one.value("template", Json());
    if (text.is_string()) return text.get<std::string>();
  }
  return std::nullopt;
}

// A file of its own counts before tokenizer_config.json, as in transformers.
absl::StatusOr<std::optional<FoundTemplate>> FindTemplate(const std::string& directory,
                                                          const Json& config, const Roots& roots) {
  const std::string jinja = directory + "/chat_template.jinja";
  ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadIfThere(jinja, roots));
  if (text) return FoundTemplate{jinja, *text};
  const std::string of_processor = directory + "/chat_template.json";
  ASSIGN_OR_RETURN(const Json json, ReadConfig(of_processor, roots));
  if (const auto found = TemplateOf(json)) return FoundTemplate{of_processor, *found};
  if (const auto found = TemplateOf(config)) {
    return FoundTemplate{directory + "/" + kConfigName, *found};
  }
  return std::nullopt;
}

const ChatFormat* FormatOf(absl::string_view text) {
  absl::ConsumeSuffix(&text, "\n");
  const std::string digest = Sha256Of(text);
  for (const ChatFormat& format : AllChatFormats()) {
    for (const char* one : format.templates) {
      if (one != nullptr && digest == one) return &format;
    }
  }
  return nullptr;
}

absl::StatusOr<const ChatFormat*> Choose(const std::string& name, const std::string& directory,
                                         const Json& config, const Roots& roots) {
  if (!name.empty()) {
    const ChatFormat* const format = FindChatFormat(name);
    if (format != nullptr) return format;
    return Refused("wanted a format of chats, one of ", ChatFormatNames(), " and ", kNoChatFormat,
                   ", found ", Shown(name));
  }
  ASSIGN_OR_RETURN(const auto found, FindTemplate(directory, config, roots));
  if (!found) {
    return Refused(directory,
                   ": wanted a chat_template beside the tokenizer, found none; name the ",
                   "format, one of ", ChatFormatNames(), " and ", kNoChatFormat);
  }
  const ChatFormat* const format = FormatOf(found->text);
  if (format != nullptr) return format;
  return Refused(found->path, ": wanted the chat_template of a known format, found another text; ",
                 "templates are programs and are not run. If it writes what one of these formats ",
                 "writes, name the format: ", ChatFormatNames(),
                 ". Otherwise let a program of yours write lines of segments: [{text, train}]");
}

}  // namespace

absl::StatusOr<ChosenChatFormat> ChooseChatFormat(const ChatFormatChoice& choice,
                                                  const Roots& roots) {
  std::string directory = std::filesystem::path(choice.tokenizer).parent_path().string();
  if (directory.empty()) directory = ".";
  for (const std::string& path : {choice.tokenizer, directory}) {
    const absl::StatusOr<std::string> found = roots.FindDirectory(path);
    if (!found.ok()) continue;
    directory = *found;
    break;
  }
  const std::string config_path = directory + "/" + kConfigName;
  ASSIGN_OR_RETURN(const Json config, ReadConfig(config_path, roots));
  ChosenChatFormat chosen;
  if (choice.name == kNoChatFormat) {
    if (choice.date.empty()) return chosen;
    return Refused("wanted no date with ", kNoChatFormat, ", found ", Shown(choice.date));
  }
  ASSIGN_OR_RETURN(chosen.format, Choose(choice.name, directory, config, roots));
  ASSIGN_OR_RETURN(chosen.settings.date, DateOf(*chosen.format, choice.date));
  struct Name {
    const char* field;
    const char* usual;
    std::string& token;
  };
  for (const Name& name : {Name{"bos_token", chosen.format->begin, chosen.settings.begin},
                           Name{"eos_token", chosen.format->end, chosen.settings.end}}) {
    if (*name.usual == '\0') continue;
    name.token = TokenOf(config, name.field);
    if (!name.token.empty()) continue;
    if (choice.name.empty()) {
      return Refused(config_path, ": wanted ", name.field,
                     ", which the chat template writes, found ", "none; usual is ", name.usual);
    }
    name.token = name.usual;
  }
  return chosen;
}

}  // namespace trainyard
