// What lies beside a tokenizer and says how chats are written: the first line names a format or
// nothing, the next byte says which file it is, and the rest is the file.

#include <filesystem>
#include <string>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "train/chat/choose_format.h"

namespace trainyard {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr const char* kNames[] = {"tokenizer_config.json", "chat_template.json",
                                    "chat_template.jinja"};
  fuzz::Input input(data, size);
  const std::string name(input.Line());
  const size_t which = input.Byte() % 3;
  const std::string path = fuzz::FileOf(kNames[which], input.Rest());
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  const auto chosen =
      ChooseChatFormat({.name = name, .tokenizer = (directory / "tokenizer.json").string()});
  std::filesystem::remove(path);  // The next input may be another file.
  if (!chosen.ok()) {
    fuzz::CheckRefusal(chosen.status());
    return 0;
  }
  if (chosen->format == nullptr) {
    CHECK(name == kNoChatFormat) << "a format that nobody has named";
    return 0;
  }
  if (!name.empty()) CHECK(name == chosen->format->name) << name;
  // What the format writes has a text.
  CHECK(*chosen->format->begin == '\0' || !chosen->settings.begin.empty());
  CHECK(*chosen->format->end == '\0' || !chosen->settings.end.empty());
  return 0;
}

}  // namespace trainyard
