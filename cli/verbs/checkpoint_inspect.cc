// trainyard checkpoint inspect: prints the run's position and the tensors of a checkpoint.

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/format.h"
#include "cli/open_checkpoint.h"
#include "cli/verbs/verbs.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "models/arch/config_json.h"

namespace trainyard::cli {
namespace {

using nlohmann::ordered_json;

ordered_json Describe(const Checkpoint& checkpoint) {
  const RunState& state = checkpoint.state();
  ordered_json tensors = ordered_json::array();
  const auto add = [&](const Manifest& manifest, bool frozen) {
    for (const StoredTensor& tensor : manifest.tensors) {
      ordered_json shape = ordered_json::array();
      for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
      tensors.push_back({{"name", tensor.name},
                         {"kind", Name(tensor.kind)},
                         {"dtype", Name(tensor.dtype)},
                         {"shape", shape},
                         {"boxes", tensor.boxes.size()}});
      if (frozen) tensors.back()["frozen"] = true;
    }
  };
  add(checkpoint.manifest(), /*frozen=*/false);
  if (checkpoint.base() != nullptr) add(*checkpoint.base(), /*frozen=*/true);
  const ordered_json model = ToJson(state.model);
  ordered_json layout = {{"data", state.layout.data}};
  ForEachAxis(state.layout, [&](const JobAxis& axis, int64_t size) { layout[axis.name] = size; });
  layout["schedule"] = state.layout.schedule;
  layout["zero"] = state.layout.zero;
  ordered_json json = {{"path", checkpoint.path()},
                       {"job_id", state.job_id},
                       {"epoch", state.epoch},
                       {"step", state.step},
                       {"data_position", state.data_position},
                       {"seed", state.seed},
                       {"deterministic", state.deterministic},
                       {"family", state.model.family()},
                       {"layers", model.value("layers", int64_t{0})},
                       {"hidden", model.value("hidden", int64_t{0})},
                       {"model", model},
                       {"layout", layout},
                       {"threads", state.layout.threads},
                       {"build", state.build},
                       {"size_bytes", checkpoint.manifest().size_bytes()}};
  if (state.validation) json["validation_loss"] = state.validation->loss;
  if (checkpoint.base() != nullptr) json["base_size_bytes"] = checkpoint.base()->size_bytes();
  json["tensors"] = tensors;
  return json;
}

void Print(const ordered_json& json, Output& output) {
  for (const auto& [key, value] : json.items()) {
    if (key == "tensors") continue;
    output.Line(absl::StrCat(key, std::string(16 - key.size(), ' '),
                             value.is_string() ? value.get<std::string>() : JsonText(value)));
  }
  std::vector<std::vector<std::string>> rows;
  for (const ordered_json& tensor : json.at("tensors")) {
    rows.push_back({tensor.at("name").get<std::string>(),
                    tensor.contains("frozen") ? "frozen" : tensor.at("kind").get<std::string>(),
                    tensor.at("dtype").get<std::string>(), JsonText(tensor.at("shape"))});
  }
  output.Line("");
  output.Table({{"TENSOR"}, {"KIND"}, {"DTYPE"}, {"SHAPE"}}, rows);
}

absl::Status RunCheckpointInspect(const Context& context) {
  // Everything that is printed is in the manifest, which is checked at opening.
  const auto use = [](const Checkpoint&) { return absl::OkStatus(); };
  ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                   OpenCheckpoint(context.arguments.Text("DIR"), use, context.output));
  const ordered_json json = Describe(checkpoint);
  if (context.output.format() == Format::kTable) {
    Print(json, context.output);
  } else {
    context.output.Line(JsonText(json, context.output.format() == Format::kJson ? 2 : -1));
  }
  return absl::OkStatus();
}

}  // namespace

Verb CheckpointInspectVerb() {
  return {.name = "checkpoint inspect",
          .summary = "shows a checkpoint's position in the run, and its tensors",
          .positionals = {{"DIR",
                           "a checkpoint, or a job's checkpoint.directory: its newest one; "
                           "DIR/best: the best one"}},
          .options = {},
          .offers = kFormats | kQuiet,
          .examples = {"trainyard checkpoint inspect runs/tiny"},
          .run = RunCheckpointInspect};
}

}  // namespace trainyard::cli
