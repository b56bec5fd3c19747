// trainyard import: makes a checkpoint of a Hugging Face model directory, or only looks at one.

#include "train/hf/import.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/balancing.h"
#include "cli/errors.h"
#include "cli/verbs/verbs.h"
#include "common/bytes.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "models/arch/config_json.h"
#include "train/hf/pending_directory.h"

namespace trainyard::cli {
namespace {

absl::Status RunImport(const Context& context) {
  const std::string from = context.arguments.Text("DIR"), to = context.arguments.Text("--to");
  ASSIGN_OR_RETURN(
      const Imported imported,
      ImportHf({.from = from, .to = to, .ignored = context.arguments.List("--ignore")}));
  Output& output = context.output;
  for (const std::string& path : imported.left) output.Note(AdviceOnLeft(path));
  if (output.format() != Format::kTable) {
    nlohmann::ordered_json json = {{"model", ToJson(imported.model)},
                                   {"parameters", imported.parameters},
                                   {"carried", imported.carried}};
    if (!to.empty()) {
      json["path"] = to;
      json["size_bytes"] = imported.size_bytes;
    }
    output.Line(JsonText(json, output.format() == Format::kJson ? 2 : -1));
    return absl::OkStatus();
  }
  const std::string model =
      absl::StrCat(imported.model.family(), ", ", imported.parameters, " parameters");
  if (const auto balancing = Balancing(imported.model)) output.Note(*balancing);
  if (to.empty()) {
    output.Line(absl::StrCat("can be imported  ", from, "  (", model, ")"));
    output.Note(absl::StrCat("a job begins with these weights if its spec has model: {import: ",
                             from, "}; --to CKPT makes a checkpoint of them"));
    return absl::OkStatus();
  }
  output.Line(absl::StrCat("imported  ", to, "  (", model, ", ",
                           FormatBytes(double(imported.size_bytes)), ")"));
  output.Note(absl::StrCat("a job begins with these weights if its spec has init_from: ", to));
  return absl::OkStatus();
}

}  // namespace

Verb ImportVerb() {
  return {
      .name = "import",
      .summary = "makes a checkpoint of a Hugging Face model directory",
      .positionals = {{"DIR", "a directory with config.json and safetensors"}},
      .options = {TextOption(
                      "--to", "CKPT",
                      "the new checkpoint; nothing may be there yet. Without it, the directory is "
                      "checked and its model shown"),
                  ListOption("--ignore", "KEY",
                             "a key of config.json that Trainyard does not know and that "
                             "changes nothing; may be repeated")},
      .offers = kFormats | kQuiet,
      .examples = {"trainyard import Llama-3.2-1B -o json",
                   "trainyard import Llama-3.2-1B --to weights/llama3.2-1b"},
      .run = RunImport};
}

}  // namespace trainyard::cli
