// The calls of kernels in the training steps of the published runs (recipes/published), with the
// shapes, strides and addresses that they have on GPUs. Nothing is computed, and no memory is used.

#pragma once

#include <any>
#include <map>
#include <string>
#include <typeindex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "models/program/program.h"

namespace trainyard::testing {

// The argument structs of kernels, in the order of their calls.
class CallBook {
 public:
  template <typename Args>
  void Add(const Args& args) {
    calls_[typeid(Args)].push_back(args);
  }
  template <typename Args>
  void ForEach(absl::FunctionRef<void(const Args&)> visit) const {
    const auto found = calls_.find(typeid(Args));
    if (found == calls_.end()) return;
    for (const std::any& args : found->second) visit(std::any_cast<const Args&>(args));
  }

 private:
  std::map<std::type_index, std::vector<std::any>> calls_;
};

// Calls visit(name, calls) for ranks of each published run that together make all calls of
// different shapes: the first, the last, and one of each pipeline stage and context position,
// unless a run on another number of data ranks has the same stages. `calls` are those of the
// instances for which `wanted` holds. Returns the number of runs.
int ForEachPublishedRank(absl::FunctionRef<bool(const Instance&)> wanted,
                         absl::FunctionRef<void(const std::string&, const CallBook&)> visit);

}  // namespace trainyard::testing
