// Looks every second, in a thread of its own, whether a later attempt of the job has begun. A step
// only reads the answer: a directory that hangs (its server is away) stops no training between
// saves.

#pragma once

#include <functional>
#include <memory>

namespace trainyard {

class SuccessorWatch {
 public:
  // `look` says whether there is one; called on the thread until it says yes. It may still run
  // after the destructor, which does not wait for one that hangs: it owns all that it uses.
  explicit SuccessorWatch(std::function<bool()> look);
  ~SuccessorWatch();
  SuccessorWatch(const SuccessorWatch&) = delete;
  SuccessorWatch& operator=(const SuccessorWatch&) = delete;

  bool seen() const;  // Never waits.

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace trainyard
