// trainyard checkpoint list: lists the checkpoints in a job's directory, oldest first.

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/verbs/verbs.h"
#include "common/bytes.h"
#include "common/files.h"
#include "common/json.h"
#include "common/roots.h"
#include "common/status_macros.h"
#include "train/checkpoint/best.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/paths.h"

namespace trainyard::cli {
namespace {

using nlohmann::ordered_json;

// `path`: as the user names it.
ordered_json Describe(const ListedCheckpoint& listed, const std::string& path) {
  ordered_json json = {{"path", path},
                       {"epoch", listed.epoch},
                       {"step", listed.step},
                       {"complete", listed.complete}};
  if (!listed.complete) return json;
  if (const auto checkpoint = Checkpoint::Open(listed.path); checkpoint.ok()) {
    json["size_bytes"] = checkpoint->manifest().size_bytes();
    const auto& validation = checkpoint->state().validation;
    if (validation) json["validation_loss"] = validation->loss;
  } else {
    json["error"] = std::string(checkpoint.status().message());
  }
  return json;
}

std::string Remark(const ordered_json& json) {
  if (json.contains("error")) return json.at("error").get<std::string>();
  if (json.contains("best")) return "the best by validation loss";
  return json.at("complete").get<bool>() ? ""
                                         : "incomplete: being written, or left by a killed run";
}

absl::Status RunCheckpointList(const Context& context) {
  std::string named = context.arguments.Text("DIR");
  while (named.size() > 1 && named.back() == '/') named.pop_back();
  if (!Exists(named)) return absl::NotFoundError(absl::StrCat("no directory ", named));
  ASSIGN_OR_RETURN(const std::string directory, Roots().FindDirectory(named));
  ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed, ListCheckpoints(directory));
  std::string best;
  if (const auto loadable = LoadableCheckpoints(directory); loadable.ok()) {
    OpenedCheckpoints opened;
    const BestCheckpoints known = OrderByLoss(*loadable, opened);
    if (!known.best_first.empty()) best = known.best_first.front().path;
  }
  if (listed.empty() && !Exists(absl::StrCat(directory, "/", kOwnerName))) {
    return absl::NotFoundError(
        absl::StrCat("wanted a job's checkpoint.directory, found ", named, ", which ",
                     Exists(absl::StrCat(directory, "/", kManifestName))
                         ? "is one checkpoint; 'trainyard checkpoint inspect' shows it"
                         : "no job has claimed"));
  }
  ordered_json all = ordered_json::array();
  for (auto checkpoint = listed.rbegin(); checkpoint != listed.rend(); ++checkpoint) {
    all.push_back(
        Describe(*checkpoint, absl::StrCat(named, checkpoint->path.substr(directory.size()))));
    if (checkpoint->path == best) all.back()["best"] = true;
  }
  Output& output = context.output;
  if (output.format() == Format::kJson) {
    output.Line(JsonText(all, 2));
  } else if (output.format() == Format::kJsonLines) {
    for (const ordered_json& json : all) output.Line(JsonText(json));
  } else {
    std::vector<std::vector<std::string>> rows;
    for (const ordered_json& json : all) {
      rows.push_back({absl::StrCat(json.at("step").get<int64_t>()),
                      absl::StrCat(json.at("epoch").get<int64_t>()),
                      json.contains("size_bytes")
                          ? FormatBytes(double(json.at("size_bytes").get<uint64_t>()))
                          : "",
                      json.contains("validation_loss")
                          ? absl::StrFormat("%.4f", json.at("validation_loss").get<double>())
                          : "",
                      json.at("path").get<std::string>(), Remark(json)});
    }
    output.Table({{"STEP", true},
                  {"ATTEMPT", true},
                  {"SIZE", true},
                  {"VALIDATION", true},
                  {"PATH"},
                  {"REMARK"}},
                 rows);
  }
  return absl::OkStatus();
}

}  // namespace

Verb CheckpointListVerb() {
  return {.name = "checkpoint list",
          .summary = "lists a job's checkpoints, oldest first",
          .positionals = {{"DIR", "the checkpoint.directory of a spec"}},
          .options = {},
          .offers = kFormats | kQuiet,
          .examples = {"trainyard checkpoint list runs/tiny  # sizes alone; 'trainyard checkpoint "
                       "verify' reads everything"},
          .run = RunCheckpointList};
}

}  // namespace trainyard::cli
