#include "train/trainer/successor_watch.h"

#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>
#include <utility>

namespace trainyard {

constexpr std::chrono::seconds kBetweenLooks(1);

struct SuccessorWatch::Shared {
  std::binary_semaphore over{0};
  std::atomic<bool> seen = false;
};

SuccessorWatch::SuccessorWatch(std::function<bool()> look) : shared_(std::make_shared<Shared>()) {
  std::thread([shared = shared_, look = std::move(look)] {
    while (!shared->seen && !shared->over.try_acquire_for(kBetweenLooks)) shared->seen = look();
  }).detach();
}

SuccessorWatch::~SuccessorWatch() { shared_->over.release(); }

bool SuccessorWatch::seen() const { return shared_->seen; }

}  // namespace trainyard
