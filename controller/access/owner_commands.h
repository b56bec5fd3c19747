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
  // Adds them to `app`. `state` is the option's value, and outlives this.
  OwnerCommands(CLI::App& app, const std::string& state);

  // After parsing: runs the one that was given. The exit code; absent: none was.
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
