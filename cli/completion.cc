#include "cli/completion.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace trainyard::cli {

std::string BashCompletion(const std::vector<Verb>& verbs) {
  std::vector<std::string> first;                           // Words after "trainyard".
  std::map<std::string, std::vector<std::string>> seconds;  // Words after "trainyard checkpoint".
  std::string cases;
  for (const Verb& verb : verbs) {
    const std::vector<std::string> names = absl::StrSplit(verb.name, ' ');
    if (names.size() == 1 || seconds[names[0]].empty()) first.push_back(names[0]);
    if (names.size() == 2) seconds[names[0]].push_back(names[1]);
    std::vector<std::string> options = {"--help"};
    for (const Option& option : verb.AllOptions()) options.push_back(option.name);
    absl::StrAppend(&cases, "    \"", verb.name, "\") words=\"", absl::StrJoin(options, " "),
                    "\" ;;\n");
  }
  std::string groups;
  for (const auto& [name, words] : seconds) {
    if (words.empty()) continue;
    absl::StrAppend(&groups, "    ", name, ") COMPREPLY=($(compgen -W \"",
                    absl::StrJoin(words, " "), "\" -- \"$current\")); return ;;\n");
  }
  return absl::StrCat(
      "# bash completion for trainyard; in ~/.bashrc: source <(trainyard completion)\n"
      "_trainyard() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words=\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"",
      absl::StrJoin(first, " "),
      " --help --version\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case $previous in\n"
      "    --output|-o) COMPREPLY=($(compgen -W \"table json jsonl\" -- \"$current\")); return ;;\n"
      "  esac\n"
      "  [ \"$COMP_CWORD\" -eq 2 ] && case ${COMP_WORDS[1]} in\n",
      groups,
      "  esac\n"
      "  case \"${COMP_WORDS[1]}\" in\n"
      "    checkpoint) set -- \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" ;;\n"
      "    *) set -- \"${COMP_WORDS[1]}\" ;;\n"
      "  esac\n"
      "  case \"$1\" in\n",
      cases,
      "  esac\n"
      "  if [[ $current == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"$current\"))\n"
      "  fi\n"
      "}\n"
      "complete -o filenames -F _trainyard trainyard\n");
}

}  // namespace trainyard::cli
