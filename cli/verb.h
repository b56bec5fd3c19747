// What a verb of the command line is made of. `verbs.cc` holds the table of all of them; help,
// parsing, completion and the test that freezes the interface read the same declarations.

#pragma once

#include <cstdint>
#include <limits>
#include <map>
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
  std::string letter;  // "-f", or empty.
  OptionKind kind;
  std::string value;  // What stands for the value in the help: "DIR". Empty for a flag.
  std::string help;
  std::string initial;     // Value when not given; empty: none.
  NumberRange range = {};  // Of kNumber: anything else is a usage error.
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

// The options and positionals of one call, already checked against the verb's declaration. Asking
// for a name that the verb does not declare is a programmer error.
class Arguments {
 public:
  void Set(const std::string& name, std::vector<std::string> values) { values_[name] = values; }

  bool Has(const std::string& name) const { return values_.count(name) != 0; }
  bool Flag(const std::string& name) const { return Has(name); }
  std::string Text(
      const std::string& name) const;  // Empty when absent and without an initial value.
  uint64_t Number(const std::string& name) const;  // 0 likewise.
  std::vector<std::string> List(const std::string& name) const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

// Where the program runs, as main found it.
struct Surroundings {
  std::string controller;        // Address: TRAINYARD_CONTROLLER, or the default.
  std::string binary_directory;  // Of this program; its siblings are there.
  CredentialPlaces places = {};  // TRAINYARD_TOKEN_FILE, TRAINYARD_AUTHORITY and the home.
};

struct Context {
  const Arguments& arguments;
  const Surroundings& surroundings;
  Output& output;

  std::string ControllerAddress() const;
  CredentialPlaces Places() const;
};

// What a verb can be asked for besides its own options.
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

  std::vector<Option> AllOptions() const;  // Its own, then those it offers.
};

}  // namespace trainyard::cli
