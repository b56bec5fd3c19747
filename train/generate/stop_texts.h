// Ends a text that is written piece by piece where one of some texts begins.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard {

class StopTexts {
 public:
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns what may be written of all so far: without a stop text, and without an end that may be
  // the beginning of one.
  std::string Add(absl::string_view text);
  bool stopped() const { return stopped_; }
  std::string End();  // What was held back.

 private:
  const std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace trainyard
