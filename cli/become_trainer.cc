#include "cli/become_trainer.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/files.h"

namespace trainyard::cli {

absl::Status BecomeTrainer(const Context& context, std::vector<std::string> arguments,
                           const std::vector<const char*>& options) {
  const std::string trainer = context.surroundings.binary_directory + "/trainyard-trainer";
  arguments.insert(arguments.begin(), trainer);
  for (const char* option : options) {
    if (!context.arguments.Has(option)) continue;
    for (const std::string& value : context.arguments.List(option)) {
      // A value may look like an option. An empty one after "=" would be taken for none.
      if (value.empty()) {
        arguments.insert(arguments.end(), {option, value});
      } else {
        arguments.push_back(absl::StrCat(option, "=", value));
      }
    }
  }
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  execv(trainer.c_str(), words.data());
  return ErrnoStatus(errno, "run", trainer);
}

}  // namespace trainyard::cli
