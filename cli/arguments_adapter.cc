#include "cli/arguments_adapter.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/errors.h"
#include "common/build_info.h"
#include "common/violations.h"

namespace trainyard::cli {
namespace {

// Values by option name. CLI11 writes into them until the verb's Arguments are made.
using Values = std::map<std::string, std::vector<std::string>>;

struct Declared {
  const Verb* verb;
  CLI::App* app;
  Values values;
};

void Declare(const Option& option, Declared& declared) {
  const std::string names =
      option.letter.empty() ? option.name : absl::StrCat(option.letter, ",", option.name);
  const std::string help =
      option.initial.empty() ? option.help : absl::StrCat(option.help, " [", option.initial, "]");
  if (option.kind == OptionKind::kFlag) {
    declared.app->add_flag(names, help);
    return;
  }
  CLI::Option* made = declared.app->add_option(names, declared.values[option.name], help);
  made->type_name(option.value);
  made->allow_extra_args(false);
  if (option.kind != OptionKind::kList)
    made->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  if (option.kind == OptionKind::kNumber) {
    made->check([range = option.range](const std::string& text) {
      uint64_t number = 0;
      const bool legal =
          absl::SimpleAtoi(text, &number) && number >= range.min && number <= range.max;
      return legal ? std::string()
                   : absl::StrCat("wanted ", range.min, " to ", range.max, ", found '", text, "'");
    });
  }
}

void DeclareVerb(const Verb& verb, Declared& declared) {
  for (const Positional& positional : verb.positionals) {
    CLI::Option* made = declared.app->add_option(positional.name, declared.values[positional.name],
                                                 positional.help);
    made->expected(1)->type_name("");
    if (positional.required) made->required();
    made->check([](const std::string& text) {
      return text.empty() ? std::string("wanted a name, found ''") : std::string();
    });
  }
  for (const Option& option : verb.AllOptions()) Declare(option, declared);
  if (verb.examples.empty()) return;
  declared.app->footer("\nExamples:\n  " + absl::StrJoin(verb.examples, "\n  "));
}

Arguments Collect(const Declared& declared) {
  Arguments arguments;
  for (const Positional& positional : declared.verb->positionals) {
    const auto& values = declared.values.at(positional.name);
    if (!values.empty()) arguments.Set(positional.name, values);
  }
  for (const Option& option : declared.verb->AllOptions()) {
    if (declared.app->count(option.name) != 0) {
      const auto values = declared.values.find(option.name);
      arguments.Set(option.name,
                    values == declared.values.end() ? std::vector<std::string>() : values->second);
    } else if (!option.initial.empty()) {
      arguments.SetDefault(option.name, option.initial);
    }
  }
  return arguments;
}

// Returns CLI11's message and, below it, the known name that is nearest to the first unexpected
// word.
std::string Explain(const std::string& what, const std::vector<std::string>& words,
                    const std::vector<std::string>& known) {
  for (const std::string& word : words) {
    if (!absl::StrContains(what, word)) continue;
    const std::string nearest = NearestName(std::string(word.substr(0, word.find('='))), known);
    if (!nearest.empty() && nearest != word)
      return absl::StrCat(what, "; did you mean '", nearest, "'?");
  }
  return what;
}

class Program {
 public:
  explicit Program(const std::vector<Verb>& verbs)
      : app_("Trains language models as a service: submits, watches and inspects jobs.",
             "trainyard") {
    app_.require_subcommand(1);
    app_.set_help_all_flag();
    app_.set_version_flag("--version",
                          absl::StrCat("trainyard ", Version(), " (", Revision(), ")"));
    app_.footer("\n'trainyard VERB --help' has the options of a verb, with examples.");
    for (const Verb& verb : verbs) {
      const std::vector<std::string> names = absl::StrSplit(verb.name, ' ');
      CLI::App* app = &app_;
      if (names.size() == 2) app = Group(names[0], names[1]);
      declared_.push_back(std::make_unique<Declared>(
          Declared{&verb, app->add_subcommand(names.back(), verb.summary), {}}));
      DeclareVerb(verb, *declared_.back());
    }
  }

  absl::StatusOr<ParsedCommand> Parse(const std::vector<std::string>& words) {
    try {
      std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 wants this order.
      app_.parse(reversed);
    } catch (const CLI::CallForHelp&) {
      const std::string unknown = UnknownWord(words);
      if (unknown.empty() || words[Depth()][0] == '-') {
        return ParsedCommand{nullptr, {}, app_.help()};
      }
      return Misused(unknown);
    } catch (const CLI::CallForVersion& version) {
      return ParsedCommand{nullptr, {}, absl::StrCat(version.what(), "\n")};
    } catch (const CLI::Error& error) {
      return Misused(What(error, words));
    }
    for (const auto& declared : declared_) {
      if (declared->app->parsed()) return ParsedCommand{declared->verb, Collect(*declared), ""};
    }
    return UsageError("no verb given; see 'trainyard --help'");
  }

 private:
  // Returns the command for the first word of verbs with two words. Its help names the second
  // words.
  CLI::App* Group(const std::string& name, const std::string& second) {
    CLI::App*& group = groups_[name];
    if (group == nullptr) {
      group = app_.add_subcommand(name, second);
      group->require_subcommand(1);
    } else {
      group->description(absl::StrCat(group->get_description(), ", ", second));
    }
    return group;
  }

  // Returns what is wrong. For an unknown word, also returns the nearest known one.
  std::string What(const CLI::Error& error, const std::vector<std::string>& words) {
    if (error.get_name() == "RequiredError" && !Innermost()->get_subcommands({}).empty()) {
      const std::string unknown = UnknownWord(words);
      return unknown.empty() ? "wanted a verb" : unknown;
    }
    return Explain(error.what(), words, Known());
  }

  absl::Status Misused(const std::string& what) {
    return UsageError(absl::StrCat(what, "; see '", Path(), " --help'"));
  }

  // Returns how many of the words are verbs.
  size_t Depth() {
    const std::string path = Path();
    return size_t(std::count(path.begin(), path.end(), ' '));
  }

  // Returns what is wrong with the word where a verb should be. Empty: there is no such word, or
  // the verb is complete.
  std::string UnknownWord(const std::vector<std::string>& words) {
    const size_t depth = Depth();
    if (depth >= words.size() || Innermost()->get_subcommands({}).empty()) return "";
    const std::string nearest = NearestName(words[depth], Known());
    return absl::StrCat("unknown ", words[depth][0] == '-' ? "option" : "verb", " '", words[depth],
                        "'",
                        nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"));
  }

  CLI::App* Innermost() {
    CLI::App* app = &app_;
    while (!app->get_subcommands().empty()) app = app->get_subcommands()[0];
    return app;
  }

  std::string Path() {
    std::string path = "trainyard";
    for (CLI::App* app = &app_; !app->get_subcommands().empty();) {
      app = app->get_subcommands()[0];
      absl::StrAppend(&path, " ", app->get_name());
    }
    return path;
  }

  std::vector<std::string> Known() {
    std::vector<std::string> known;
    for (CLI::App* below : Innermost()->get_subcommands({})) known.push_back(below->get_name());
    for (const CLI::Option* option : Innermost()->get_options())
      known.push_back(option->get_name());
    return known;
  }

  CLI::App app_;
  std::vector<std::unique_ptr<Declared>> declared_;
  std::map<std::string, CLI::App*> groups_;
};

}  // namespace

absl::StatusOr<ParsedCommand> ParseCommand(const std::vector<Verb>& verbs,
                                           const std::vector<std::string>& words) {
  return Program(verbs).Parse(words);
}

}  // namespace trainyard::cli
