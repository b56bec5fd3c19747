#include "tests/simulation/rank_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/attempt.h"
#include "tests/simulation/machine.h"
#include "worker/channel/exit_cause.h"

namespace trainyard::simulation {
namespace {

std::string AddressKey(uint32_t rank) { return absl::StrCat("address-", rank); }

}  // namespace

RankProcess::RankProcess(EventQueue& queue, Machine& machine, RankId id,
                         std::shared_ptr<Attempt> attempt)
    : machine_(machine), id_(std::move(id)), attempt_(std::move(attempt)), process_(queue) {}

RankFolder& RankProcess::folder() const { return machine_.folder(id_); }

void RankProcess::Meet(uint32_t world) {
  for (uint32_t peer = 0; peer < world; ++peer) {
    if (peer != id_.rank) wanted_.insert(AddressKey(peer));
  }
  if (wanted_.empty()) return attempt_->Met();
  Report(channel::Set{AddressKey(id_.rank), "address"});
  Reconnect();
}

void RankProcess::OnValue(const std::string& key) {
  process_.Do([this, key] {
    if (wanted_.erase(key) > 0 && wanted_.empty()) attempt_->Met();
  });
}

void RankProcess::Report(channel::Message message) {
  kept_.push_back(std::move(message));
  Deliver();
}

void RankProcess::Deliver() {
  DaemonProcess* daemon = machine_.daemon();
  if (!process_.acting() || daemon == nullptr || !daemon->process().acting()) return;
  for (channel::Message& message : std::exchange(kept_, {})) {
    daemon->OnMessage(id_, message);
    last_taken_ = std::move(message);
  }
}

void RankProcess::Reconnect() {
  process_.Do([this] {
    DaemonProcess* daemon = machine_.daemon();
    if (daemon == nullptr || !daemon->process().alive()) return;
    if (machine_.queue().Chance(0.5) && last_taken_) kept_.insert(kept_.begin(), *last_taken_);
    last_taken_.reset();
    Deliver();
    for (const std::string& key : std::set<std::string>(wanted_)) daemon->OnGet(id_, key);
  });
}

void RankProcess::Exit(const RankExit& exit) {
  if (!process_.alive()) return;
  machine_.queue().Trace("rank ", id_.Name(), " on ", machine_.id(), " exits: ", Name(exit.cause),
                         " ", exit.signal, " ", exit.message);
  process_.Kill();
  RankFolder& mine = folder();
  mine.unsent.insert(mine.unsent.end(), kept_.begin(), kept_.end());
  mine.synced = true;
  mine.exit_report = exit;
  const std::shared_ptr<RankProcess> self = mine.process;  // Until the end of this function.
  attempt_->Died(*this, false);
  machine_.OnProcessGone(id_);
}

void RankProcess::LosePower() {
  if (!process_.alive()) return;
  machine_.queue().Trace("rank ", id_.Name(), " on ", machine_.id(), " loses its power");
  process_.Kill();
  const std::shared_ptr<RankProcess> self = folder().process;
  attempt_->Died(*this, true);
}

}  // namespace trainyard::simulation
