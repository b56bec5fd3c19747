#include "cli/command_line.h"

#include "absl/strings/str_cat.h"
#include "cli/arguments_adapter.h"
#include "cli/errors.h"
#include "common/net/address.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace trainyard::cli {
namespace {

absl::Status Run(const std::vector<Verb>& verbs, const std::vector<std::string>& words,
                 const Surroundings& surroundings, Output& output) {
  ASSIGN_OR_RETURN(const ParsedCommand command, ParseCommand(verbs, words));
  if (command.verb == nullptr) {
    output.Text(command.text);
    return absl::OkStatus();
  }
  if (command.verb->offers & kFormats) {
    RETURN_IF_ERROR(output.SetFormat(command.arguments.Text("--output")));
  }
  if (command.arguments.Flag("--quiet")) output.SetQuiet();
  const Context context{command.arguments, surroundings, output};
  if (command.verb->offers & kController) {
    for (const std::string& word : words) {  // A message can have only valid UTF-8.
      if (ValidUtf8(word) == word) continue;
      return UsageError(absl::StrCat("wanted UTF-8, found '", ValidUtf8(word), "'"));
    }
    const absl::Status address = ParseAddress(context.ControllerAddress()).status();
    if (!address.ok()) return UsageError(absl::StrCat("--controller: ", address.message()));
  }
  return command.verb->run(context);
}

}  // namespace

int RunCommandLine(const std::vector<Verb>& verbs, const std::vector<std::string>& words,
                   const Surroundings& surroundings, Output& output) {
  absl::Status status = Run(verbs, words, surroundings, output);
  if (status.ok()) status = output.Written();
  if (!status.ok()) output.Error(status.message());
  return ExitCode(status);
}

}  // namespace trainyard::cli
