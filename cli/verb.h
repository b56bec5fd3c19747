// The declaration of a verb of the command line. `verbs.cc` has the table of all verbs. Help,
// parsing, completion and the test that freezes the interface read the same declarations.

#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/output.h"
#include "security/credentials.h"

namespace trainyard::cli {

enum class OptionKind { kFlag, kText, kNumber, kList };

struct NumberRange {
  uint64_t min = 0;
  uint64_t max = std::numeric_limits<uint64_t>::max();
};

struct Option {
  std::string name;    // "--state"
  std::string letter;  // "-f"; may be empty.
  OptionKind kind;
  std::string value;  // Placeholder of the value in the help: "DIR". Empty for a flag.
  std::string help;
  std::string initial;     // The default value; empty: none.
  NumberRange range = {};  // Of kNumber. Other values are usage errors.
};

Option FlagOption(const std::string& name, const std::string& letter, const std::string& help);
Option TextOption(const std::string& name, const std::string& value, const std::string& help,
                  const std::string& initial = "");
Option NumberOption(const std::string& name, const std::string& value, const std::string& help,
                    const std::string& initial = "", NumberRange range = {});
Option ListOption(const std::string& name, const std::string& value, const std::string& help);

struct Positional {
  std::string name;  // "JOB"
  std::string help;
  bool required = true;
};

// The options and positionals of one call, checked against the verb's declaration. It is a
// programmer error to ask for a name that the verb does not declare.
class Arguments {
 public:
  void Set(const std::string& name, std::vector<std::string> values) { values_[name] = values; }
  void SetDefault(const std::string& name, const std::string& value) {
    values_[name] = {value};
    defaults_.insert(name);
  }

  bool Has(const std::string& name) const { return values_.count(name) != 0; }
  // Whether the call itself has it.
  bool Given(const std::string& name) const { return Has(name) && !defaults_.contains(name); }
  bool Flag(const std::string& name) const { return Has(name); }
  // Empty if the option is absent and has no default.
  std::string Text(const std::string& name) const;
  uint64_t Number(const std::string& name) const;  // 0 if absent without a default.
  std::vector<std::string> List(const std::string& name) const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
  std::set<std::string> defaults_;  // The names in `values_` that have their default.
};

// Facts about this process from main.
struct Surroundings {
  std::string controller;        // Address: TRAINYARD_CONTROLLER, or the default.
  std::string binary_directory;  // That of this program and its siblings.
  CredentialPlaces places = {};  // TRAINYARD_TOKEN_FILE, TRAINYARD_AUTHORITY and the home.
};

struct Context {
  const Arguments& arguments;
  const Surroundings& surroundings;
  Output& output;

  std::string ControllerAddress() const;
  CredentialPlaces Places() const;
};

// Common options that a verb accepts besides its own.
enum Offers : unsigned {
  kNothing = 0,
  kController = 1,  // --controller
  kFormats = 2,     // -o table|json|jsonl
  kQuiet = 4,       // --quiet
};

struct Verb {
  std::string name;     // "submit", or two words: "checkpoint digest".
  std::string summary;  // One line.
  std::vector<Positional> positionals;
  std::vector<Option> options;
  unsigned offers = kNothing;
  std::vector<std::string> examples;  // Each "command  # what it does".
  absl::Status (*run)(const Context& context) = nullptr;

  std::vector<Option> AllOptions() const;  // The verb's own, then the offered ones.
};

}  // namespace trainyard::cli
