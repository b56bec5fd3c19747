// Looks every second, in its own thread, whether a later attempt of the job has begun. A step only
// reads the answer. So a directory that hangs, because its server is away, stops no training
// between saves.

#pragma once

#include <functional>
#include <memory>

namespace trainyard {

class SuccessorWatch {
 public:
  // `look` must return whether there is a later attempt. It is called on the thread until it
  // returns true. It must own all that it uses: the destructor does not wait for a call that hangs,
  // so the call may still run afterwards.
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
