// The commands of trainyard-controller that end at once: init, token and reader. They are for the
// owner of the state directory, and ask no controller.

#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace trainyard::controller {

class OwnerCommands {
 public:
  // Adds the commands to `app`. `state` is the value of the option --state, and must outlive this
  // object.
  OwnerCommands(CLI::App& app, const std::string& state);

  // Runs the command that was given, and returns its exit code. Absent: no command was given. Call
  // this after parsing.
  std::optional<int> Run() const;

 private:
  absl::Status Init() const;
  absl::Status Token() const;
  absl::Status Reader() const;

  const std::string& state_;
  CLI::App* const init_;
  CLI::App* const token_;
  CLI::App* const reader_;
  std::vector<std::string> hosts_;
  std::string name_, role_ = "admin", namespace_, directory_;
  int days_ = 90, uses_ = 1;
};

}  // namespace trainyard::controller
