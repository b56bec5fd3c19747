#include "controller/cli/command_line.h"

#include "common/status_macros.h"
#include "controller/cli/arguments_adapter.h"
#include "controller/cli/errors.h"

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
  return command.verb->run({command.arguments, surroundings, output});
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
