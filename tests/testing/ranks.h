// Runs one function as every rank of a group of threads.

#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/collective/local.h"

namespace trainyard::testing {

// Calls f on a thread per rank, and returns what each threw ("" if nothing). A rank that throws
// aborts the group, so that its peers end, too.
inline std::vector<std::string> RunRanks(const std::vector<Collective*>& ranks,
                                         const std::function<void(Collective&)>& f) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        f(*ranks[i]);
      } catch (const DeviceError& error) {
        errors[i] = error.what();
        ranks[i]->Abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::vector<std::string> RunRanks(int size, const std::function<void(Collective&)>& f) {
  LocalGroup group(size);
  std::vector<Collective*> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(&group.rank(i));
  return RunRanks(ranks, f);
}

}  // namespace trainyard::testing
