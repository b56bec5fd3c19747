// Runs one function as every rank of a world of threads.

#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/collective/local.h"

namespace trainyard::testing {

// Calls f on a thread per rank, and returns what each threw ("" if nothing). A rank that throws
// aborts its world, so that its peers end, too.
inline std::vector<std::string> RunWorlds(const std::vector<CollectiveWorld*>& worlds,
                                          const std::function<void(CollectiveWorld&)>& f) {
  std::vector<std::string> errors(worlds.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < worlds.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        f(*worlds[i]);
      } catch (const DeviceError& error) {
        errors[i] = error.what();
        worlds[i]->Abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::vector<std::string> RunWorlds(int size,
                                          const std::function<void(CollectiveWorld&)>& f) {
  LocalWorld world(size);
  std::vector<CollectiveWorld*> worlds;
  for (int i = 0; i < size; ++i) worlds.push_back(&world.world(i));
  return RunWorlds(worlds, f);
}

// The same where one group of all ranks is enough.
inline std::vector<std::string> RunRanks(const std::vector<CollectiveWorld*>& worlds,
                                         const std::function<void(Collective&)>& f) {
  return RunWorlds(worlds, [&](CollectiveWorld& world) {
    const auto everyone = world.Everyone();
    CHECK(everyone.ok()) << everyone.status();
    f(**everyone);
  });
}

inline std::vector<std::string> RunRanks(int size, const std::function<void(Collective&)>& f) {
  return RunWorlds(size, [&](CollectiveWorld& world) { f(**world.Everyone()); });
}

}  // namespace trainyard::testing
