#include "cli/verb.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/net/address.h"

namespace trainyard::cli {

std::string Arguments::Text(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() || found->second.empty() ? "" : found->second.back();
}

uint64_t Arguments::Number(const std::string& name) const {
  uint64_t number = 0;
  const std::string text = Text(name);
  if (!text.empty()) CHECK(absl::SimpleAtoi(text, &number)) << name << ' ' << text;
  return number;
}

std::vector<std::string> Arguments::List(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

std::string Context::ControllerAddress() const {
  const std::string given = arguments.Text("--controller");
  return given.empty() ? surroundings.controller : given;
}

CredentialPlaces Context::Places() const {
  CredentialPlaces places = surroundings.places;
  if (arguments.Has("--token-file")) places.token_file = arguments.Text("--token-file");
  if (arguments.Has("--authority")) places.authority_file = arguments.Text("--authority");
  return places;
}

Option FlagOption(const std::string& name, const std::string& letter, const std::string& help) {
  return {name, letter, OptionKind::kFlag, "", help, ""};
}
Option TextOption(const std::string& name, const std::string& value, const std::string& help,
                  const std::string& initial) {
  return {name, "", OptionKind::kText, value, help, initial};
}
Option NumberOption(const std::string& name, const std::string& value, const std::string& help,
                    const std::string& initial, NumberRange range) {
  return {name, "", OptionKind::kNumber, value, help, initial, range};
}
Option ListOption(const std::string& name, const std::string& value, const std::string& help) {
  return {name, "", OptionKind::kList, value, help, ""};
}

std::vector<Option> Verb::AllOptions() const {
  std::vector<Option> all = options;
  if (offers & kController) {
    all.push_back(
        TextOption("--controller", "ADDR",
                   absl::StrCat("the controller's host:port (or TRAINYARD_CONTROLLER; else ",
                                kDefaultController, ")")));
    all.push_back(TextOption(
        "--token-file", "FILE",
        "file with the token to show to the controller (or TRAINYARD_TOKEN_FILE; else the one that "
        "'trainyard login' stored, or that a controller on this machine wrote for its own user)"));
    all.push_back(TextOption("--authority", "FILE",
                             "certificate of the authority that proves the controller (or "
                             "TRAINYARD_AUTHORITY; else the one that 'trainyard login' stored)"));
  }
  if (offers & kFormats) {
    all.push_back(TextOption("--output", "FORMAT", "table, json or jsonl", "table"));
    all.back().letter = "-o";
  }
  if (offers & kQuiet) {
    all.push_back(FlagOption("--quiet", "-q", "print only the answer and errors"));
  }
  return all;
}

}  // namespace trainyard::cli
