#include "tests/simulation/machine.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::simulation {
namespace {

constexpr absl::Duration kKeepAlive = absl::Seconds(30);  // Until a silent stream is given up.

}  // namespace

void Machine::StartDaemon() {
  if (gone || daemon_ != nullptr) return;
  queue().Trace(id_, ": its daemon starts");
  daemon_ = std::make_unique<DaemonProcess>(world_, *this, absl::StrCat(id_, "-", ++daemons_));
}

void Machine::OnProcessGone(const RankId& id) {
  if (daemon_ != nullptr) daemon_->OnProcessGone(id);
}

void Machine::CrashDaemon(absl::Duration away) {
  if (daemon_ == nullptr) return;
  queue().Trace(id_, ": its daemon dies");
  daemon_->Die(true);
  daemon_.reset();
  queue().After(away, [this] { StartDaemon(); });
}

void Machine::FreezeDaemon(absl::Duration away) {
  if (daemon_ == nullptr || daemon_->process().frozen()) return;
  queue().Trace(id_, ": its daemon stands still for ", absl::FormatDuration(away));
  daemon_->process().Freeze();
  queue().After(away, [this, daemon = daemon_.get(), number = daemons_] {
    if (daemon_.get() != daemon || daemons_ != number) return;
    queue().Trace(id_, ": its daemon goes on");
    daemon->process().Thaw();
    for (auto& [id, folder] : folders_) {
      if (folder.process != nullptr) folder.process->Deliver();
    }
  });
}

void Machine::CutWay(absl::Duration away, bool from_peers) {
  if (way_.cut()) return;
  queue().Trace(id_, ": cut off for ", absl::FormatDuration(away), from_peers ? ", wholly" : "");
  way_.Cut();
  isolated = from_peers;
  const bool gives_up = away > kKeepAlive;
  if (gives_up) {
    queue().After(kKeepAlive, [this] {
      if (daemon_ != nullptr) daemon_->LoseStream();
    });
  }
  queue().After(away, [this] {
    queue().Trace(id_, ": the way is open");
    isolated = false;
    way_.Open();
  });
}

// The spools of a rank that runs are written, not synced: some of them may be gone.
void Machine::LosePower() {
  if (daemon_ != nullptr) daemon_->Die(false);
  daemon_.reset();
  for (auto& [id, folder] : folders_) {
    if (folder.process != nullptr) folder.process->LosePower();
    if (folder.reported || folder.synced || !queue().Chance(0.5)) continue;
    folder.steps.clear();
    folder.checkpoints.clear();
    folder.unsent.clear();
  }
}

void Machine::Reboot(absl::Duration away) {
  if (gone) return;
  queue().Trace(id_, ": reboots");
  LosePower();
  queue().After(away, [this] { StartDaemon(); });
}

void Machine::Vanish() {
  queue().Trace(id_, ": is gone for ever");
  gone = true;
  LosePower();
}

}  // namespace trainyard::simulation
