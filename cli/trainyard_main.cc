// The program `trainyard`. Start with verbs/verbs.cc, the table of its verbs.

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "absl/strings/match.h"
#include "cli/command_line.h"
#include "cli/verbs/verbs.h"
#include "common/net/address.h"

namespace {

std::string Environment(const char* name, const char* absent) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : absent;
}

trainyard::cli::Terminal FindTerminal() {
  trainyard::cli::Terminal terminal;
  terminal.live = isatty(STDOUT_FILENO) && Environment("TERM", "") != "dumb";
  terminal.colour = terminal.live && Environment("NO_COLOR", "").empty();
  const std::string locale =
      Environment("LC_ALL", Environment("LC_CTYPE", Environment("LANG", "").c_str()).c_str());
  terminal.utf8 = absl::StrContains(locale, "UTF-8") || absl::StrContains(locale, "utf8");
  winsize size{};
  if (terminal.live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = size.ws_col;
  }
  return terminal;
}

}  // namespace

int main(int argc, char** argv) {
  trainyard::cli::Surroundings surroundings;
  surroundings.controller = Environment("TRAINYARD_CONTROLLER", trainyard::kDefaultController);
  surroundings.places = {
      .token_file = Environment("TRAINYARD_TOKEN_FILE", ""),
      .authority_file = Environment("TRAINYARD_AUTHORITY", ""),
      .config_directory =
          trainyard::ConfigDirectory(std::getenv("XDG_CONFIG_HOME"), std::getenv("HOME")),
      .readers = trainyard::ReadersWhere(std::getenv("KUBERNETES_SERVICE_HOST"))};
  std::error_code error;
  surroundings.binary_directory =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  trainyard::cli::Output output(std::cout, std::cerr, FindTerminal());
  return trainyard::cli::RunCommandLine(trainyard::cli::Verbs(),
                                        std::vector<std::string>(argv + 1, argv + argc),
                                        surroundings, output);
}
