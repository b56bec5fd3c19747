// The files that daemons, supervisors and trainers leave each other. The first line names the file.

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "worker/daemon/devices.h"
#include "worker/daemon/rank_config.h"
#include "worker/daemon/rank_directory.h"
#include "worker/service/convert.h"

namespace trainyard {
namespace {

template <typename T>
bool Read(const absl::StatusOr<T>& read) {
  if (!read.ok()) fuzz::CheckRefusal(read.status());
  return read.ok();
}

void CheckLaunch(const std::string& path) {
  const auto launch = ReadLaunch(path);
  if (Read(launch)) CHECK(!launch->trainer.empty());
}

void CheckExitReport(const std::string& path) {
  const auto read = ReadExitReport(path);
  if (!Read(read)) return;
  CHECK(WriteExitReport(path, *read).ok());
  const auto again = ReadExitReport(path);
  CHECK(again.ok() && again->cause == read->cause && again->signal == read->signal &&
        again->message == read->message);
}

void CheckName(absl::string_view name) {
  const auto id = RankDirectory::ParseName(name);
  // The file system's names need not be UTF-8, and a refused one goes into the log alone.
  if (id.ok()) CHECK(id->Name() == name && name.find('/') == name.npos) << name;
}

// An order of the controller, as far as the config that the daemon writes for the trainer.
void CheckOrder(absl::string_view bytes) {
  v1::StartRanks message;
  if (!message.ParseFromArray(bytes.data(), int(bytes.size()))) return;
  const StartOrder order = FromProto(message);
  const RankDirectory directory("/state/ranks/j-1.1.0");
  DaemonOptions options;
  options.devices.resize(1);
  for (const RankPlacement& rank : order.ranks) {
    Read(TrainerConfigText(options, order, {rank.rank, 0}, directory));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const absl::string_view kind = input.Line();
  const absl::string_view text = input.Rest();
  if (kind == "launch") CheckLaunch(fuzz::FileOf("launch.json", text));
  if (kind == "exit") CheckExitReport(fuzz::FileOf("exit_report.json", text));
  if (kind == "supervisor") Read(ReadSupervisor(fuzz::FileOf("supervisor.json", text)));
  if (kind == "name") CheckName(text);
  if (kind == "order") CheckOrder(text);
  return 0;
}

}  // namespace trainyard
