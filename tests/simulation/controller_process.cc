#include "tests/simulation/controller_process.h"

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "tests/simulation/controller_end.h"

namespace trainyard::simulation {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(250);

}  // namespace

ControllerProcess::ControllerProcess(EventQueue& queue, std::string directory,
                                     ControllerWatch watch)
    : queue_(queue), directory_(std::move(directory)), watch_(std::move(watch)) {}

ControllerProcess::~ControllerProcess() { Bury(); }

absl::Status ControllerProcess::Open() {
  process_ = std::make_unique<Process>(queue_);
  ASSIGN_OR_RETURN(store_, PumpedStore::Open(directory_, queue_, *process_, [this] {
                     if (!doomed_ || !disk_.hit()) return false;
                     process_->Kill();
                     queue_.After(absl::ZeroDuration(), [this] { Crash(death_, away_); });
                     return true;
                   }));
  registry_ = std::make_shared<prometheus::Registry>();
  metrics_ = std::make_unique<controller::ControllerMetrics>(*registry_);
  time_ = std::make_unique<controller::BelievedTime>(queue_.clock(), absl::ZeroDuration);
  ASSIGN_OR_RETURN(book_, controller::JobBook::Create(*time_, *store_, *metrics_));
  const auto wake = [this] {
    process_->After(absl::ZeroDuration(), [this] { coordinator_->Tick(); });
  };
  coordinator_ = std::make_unique<controller::Coordinator>(*time_, *book_, *metrics_, wake);
  return absl::OkStatus();
}

void ControllerProcess::Start() {
  if (const absl::Status status = Open(); !status.ok()) {
    if (doomed_ && disk_.hit()) return Crash(death_, away_);  // Died while it started.
    // It ends, and whoever starts it tries again.
    if (absl::IsResourceExhausted(status)) return Crash(Death::kKilled, absl::Seconds(1));
    queue_.Fail(absl::StrCat("the store does not open: ", status.ToString()));
    return;
  }
  started_ = queue_.now();
  queue_.Trace("controller starts, generation ", store_->generation());
  watch_.started();
  TickEvery();
}

void ControllerProcess::TickEvery() {
  process_->After(kTick, [this] {
    coordinator_->Tick();
    watch_.ticked();
    TickEvery();
  });
}

double ControllerProcess::NumRefused() {
  double sum = 0;
  for (const char* report : {"step", "event"}) {
    sum += metrics_->reports_refused_total.Add({{"report", report}}).Value();
  }
  return sum;
}

void ControllerProcess::DieAtWrite(Death death, int call, absl::Duration away) {
  if (!up() || doomed_) return;
  doomed_ = true;
  death_ = death;
  away_ = away;
  disk_.Arm(death == Death::kKilled ? controller::Fault::kDeath : controller::Fault::kPowerCut,
            call);
}

void ControllerProcess::Crash(Death death, absl::Duration away) {
  if (process_ == nullptr) return;
  queue_.Trace("controller dies", death == Death::kPowerCut ? ", with the power" : "");
  if (!doomed_ || !disk_.hit()) disk_.Arm(controller::Fault::kDeath, 0);  // No last words.
  Bury();
  if (death == Death::kPowerCut) disk_.LosePower();
  doomed_ = false;
  full_ ? FillDisk() : FreeDisk();
  queue_.After(away, [this] { Start(); });
}

// The ends outlive the coordinator only as what they are to their workers: closed.
void ControllerProcess::Bury() {
  if (process_ != nullptr) process_->Kill();
  for (const auto& end : ends_) end->Die();
  coordinator_.reset();
  book_.reset();
  store_.reset();
  metrics_.reset();
  ends_.clear();
  process_.reset();
}

void ControllerProcess::FillDisk() {
  full_ = true;
  if (!doomed_) disk_.Arm(controller::Fault::kStaysFull, 1);
}

void ControllerProcess::FreeDisk() {
  full_ = false;
  if (!doomed_) disk_.Arm(controller::Fault::kNone, 0);
}

std::shared_ptr<UpPipe> ControllerProcess::Accept(Way& way, std::shared_ptr<DownPipe> down) {
  if (!up()) return nullptr;
  const auto end = std::make_shared<ControllerEnd>(*this, std::move(down));
  ends_.push_back(end);
  const std::weak_ptr<ControllerEnd> weak = end;
  const auto receive = [this, weak](std::optional<v1::ConnectRequest> request) {
    if (request) queue_.Hash(request->SerializeAsString());
    const auto open = weak.lock();
    if (open == nullptr || process_ == nullptr) return;
    process_->Do([weak, request = std::move(request)] {
      if (const auto still = weak.lock()) still->Receive(request);
    });
  };
  const auto up = std::make_shared<UpPipe>(queue_, way, receive);
  end->SetUp(up);
  return up;
}

}  // namespace trainyard::simulation
