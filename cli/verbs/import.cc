// trainyard import: makes a checkpoint of a Hugging Face model directory.

#include "train/hf/import.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/errors.h"
#include "cli/verbs/verbs.h"
#include "common/bytes.h"
#include "common/status_macros.h"
#include "models/arch/config_json.h"

namespace trainyard::cli {
namespace {

absl::Status Run(const Context& context) {
  const std::string to = context.arguments.Text("--to");
  if (to.empty()) return UsageError("--to: wanted the path of the new checkpoint, found none");
  ASSIGN_OR_RETURN(const Imported imported, ImportHf(context.arguments.Text("DIR"), to));
  Output& output = context.output;
  if (output.format() != Format::kTable) {
    const nlohmann::ordered_json json = {{"path", to},
                                         {"model", ToJson(imported.model)},
                                         {"parameters", imported.parameters},
                                         {"size_bytes", imported.size_bytes},
                                         {"carried", imported.carried}};
    output.Line(json.dump(output.format() == Format::kJson ? 2 : -1));
    return absl::OkStatus();
  }
  output.Line(absl::StrCat("imported  ", to, "  (", imported.model.family(), ", ",
                           imported.parameters, " parameters, ",
                           FormatBytes(double(imported.size_bytes)), ")"));
  output.Note(absl::StrCat("a job begins with these weights if its spec has init_from: ", to));
  return absl::OkStatus();
}

}  // namespace

Verb ImportVerb() {
  return {.name = "import",
          .summary = "makes a checkpoint of a Hugging Face model directory",
          .positionals = {{"DIR", "a directory with config.json and safetensors"}},
          .options = {TextOption("--to", "CKPT", "the new checkpoint; nothing may be there yet")},
          .offers = kFormats | kQuiet,
          .examples = {"trainyard import Llama-3.2-1B --to weights/llama3.2-1b"},
          .run = Run};
}

}  // namespace trainyard::cli
