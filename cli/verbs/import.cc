// trainyard import: makes a checkpoint of a Hugging Face model directory, or of an adapter that
// PEFT wrote and its base, or only looks at one.

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
#include "train/config/adapter_patterns.h"
#include "train/config/patterns.h"
#include "train/hf/import_adapter.h"
#include "train/hf/peft_directory.h"
#include "train/hf/pending_directory.h"

namespace trainyard::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson JsonOf(const Imported& imported, const std::string& to) {
  OrderedJson json = {{"model", ToJson(imported.model)},
                      {"parameters", imported.parameters},
                      {"carried", imported.carried}};
  if (!to.empty()) {
    json["path"] = to;
    json["size_bytes"] = imported.size_bytes;
  }
  return json;
}

void PrintJson(const OrderedJson& json, Output& output) {
  output.Line(JsonText(json, output.format() == Format::kJson ? 2 : -1));
}

absl::Status RunImportOfModel(const ImportOptions& options, Output& output) {
  ASSIGN_OR_RETURN(const Imported imported, ImportHf(options));
  for (const std::string& path : imported.left) output.Note(AdviceOnLeft(path));
  if (output.format() != Format::kTable) {
    PrintJson(JsonOf(imported, options.to), output);
    return absl::OkStatus();
  }
  const std::string model =
      absl::StrCat(imported.model.family(), ", ", imported.parameters, " parameters");
  if (const auto balancing = Balancing(imported.model)) output.Note(*balancing);
  if (options.to.empty()) {
    output.Line(absl::StrCat("can be imported  ", options.from, "  (", model, ")"));
    output.Note(absl::StrCat("a job begins with these weights if its spec has model: {import: ",
                             options.from, "}; --to CKPT makes a checkpoint of them"));
    return absl::OkStatus();
  }
  output.Line(absl::StrCat("imported  ", options.to, "  (", model, ", ",
                           FormatBytes(double(imported.size_bytes)), ")"));
  output.Note(
      absl::StrCat("a job begins with these weights if its spec has init_from: ", options.to));
  return absl::OkStatus();
}

// The adapter as a spec has it. Fields with the values that absent ones have are left out.
OrderedJson SpecOf(const LoraConfig& lora) {
  OrderedJson json = {{"rank", lora.rank}, {"alpha", lora.alpha}};
  if (lora.rslora) json["rslora"] = true;
  if (lora.dora) json["dora"] = true;
  if (lora.dropout > 0) json["dropout"] = lora.dropout;
  json["targets"] = lora.targets;
  if (!lora.modules_to_save.empty()) json["modules_to_save"] = lora.modules_to_save;
  return {{"lora", json}};
}

absl::Status RunImportOfAdapter(const ImportOptions& options, const std::string& base,
                                Output& output) {
  ASSIGN_OR_RETURN(const ImportedAdapter adapter, ImportAdapter(options, base));
  const Imported& imported = adapter.imported;
  LoraConfig lora = AdapterThatTrains(imported.model, adapter.numbers, adapter.trained);
  lora.dropout = adapter.config.dropout;
  for (const std::string& path : imported.left) output.Note(AdviceOnLeft(path));
  if (output.format() != Format::kTable) {
    OrderedJson json = JsonOf(imported, options.to);
    json["adapter"] = SpecOf(lora);
    json["base"] = adapter.base;
    json["trained_parameters"] = adapter.trained_parameters;
    PrintJson(json, output);
    return absl::OkStatus();
  }
  const std::string model =
      absl::StrCat("adapter of ", adapter.trained_parameters, " parameters on ", adapter.base, ", ",
                   imported.model.family());
  if (options.to.empty()) {
    output.Line(absl::StrCat("can be imported  ", options.from, "  (", model, ")"));
    output.Note("--to CKPT makes a checkpoint of the adapter and its base");
    return absl::OkStatus();
  }
  output.Line(absl::StrCat("imported  ", options.to, "  (", model, ", ",
                           FormatBytes(double(imported.size_bytes)), ")"));
  if (lora.targets.size() > kMaxPatterns || lora.modules_to_save.size() > kMaxPatterns) {
    output.Note(absl::StrCat("a spec has at most ", kMaxPatterns,
                             " patterns, which do not describe these layers, so no job goes on ",
                             "with this adapter; export --merge makes a model of it"));
    return absl::OkStatus();
  }
  output.Note(absl::StrCat("a job of this model goes on with this adapter if its spec has ",
                           "init_from: ", options.to, " and adapter: ", JsonText(SpecOf(lora))));
  return absl::OkStatus();
}

absl::Status RunImport(const Context& context) {
  const ImportOptions options = {.from = context.arguments.Text("DIR"),
                                 .to = context.arguments.Text("--to"),
                                 .ignored = context.arguments.List("--ignore")};
  const std::string base = context.arguments.Text("--base");
  const bool of_adapter = !base.empty() || IsPeftDirectory(options.from);
  return of_adapter ? RunImportOfAdapter(options, base, context.output)
                    : RunImportOfModel(options, context.output);
}

}  // namespace

Verb ImportVerb() {
  return {
      .name = "import",
      .summary = "makes a checkpoint of a Hugging Face model directory, or of an adapter of PEFT",
      .positionals = {{"DIR",
                       "a directory with config.json and safetensors, or one that PEFT "
                       "wrote, with adapter_config.json"}},
      .options = {TextOption(
                      "--to", "CKPT",
                      "the new checkpoint; nothing may be there yet. Without it, the directory is "
                      "checked and its model shown"),
                  TextOption("--base", "DIR",
                             "of an adapter: the directory of the model that it was trained "
                             "beside; the one that adapter_config.json names"),
                  ListOption("--ignore", "KEY",
                             "a key of config.json that Trainyard does not know and that "
                             "changes nothing; may be repeated")},
      .offers = kFormats | kQuiet,
      .examples = {"trainyard import Llama-3.2-1B -o json",
                   "trainyard import Llama-3.2-1B --to weights/llama3.2-1b",
                   "trainyard import my-adapter --base Llama-3.2-1B --to runs/my-adapter"},
      .run = RunImport};
}

}  // namespace trainyard::cli
