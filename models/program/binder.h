// What an op sees while it is bound: addresses instead of values.

#pragma once

#include <functional>
#include <utility>

#include "kernels/collective/collective.h"
#include "kernels/device/backend.h"
#include "kernels/device/step_state.h"
#include "kernels/device/tensor.h"
#include "models/program/op.h"

namespace trainyard {

class Binder {
 public:
  virtual ~Binder() = default;

  virtual const Backend& backend() const = 0;
  virtual Tensor tensor(Value value) const = 0;
  virtual Tensor flat(FlatBuffer buffer, const FlatRange& range) const = 0;  // One dim.
  virtual Tensor frozen(const ParameterBox& box) const = 0;                  // One dim.
  // Whether this instance, bound for the first or for later micro-batches, overwrites the parameter
  // gradient or adds to it. Overwrites what is no parameter's gradient (Recorder::GradientOutput).
  virtual Write write(Value gradient) const = 0;
  // The same of the sums over micro-batches where each of them has its gradients apart.
  virtual Write write_sums() const = 0;
  virtual StepState* step_state() const = 0;
  virtual Collective& collective(AxisSet axes) const = 0;
  // Throws what has failed on its way between ranks: for the computing thread, after it has read
  // from the device and before it takes that for a result.
  virtual std::function<void()> CheckCommunication() const = 0;
  // Blocks until the communication stream has run what was given to it.
  virtual Call WaitForCommunication() const = 0;
  // See BlockWindows. Where no block is to be gathered ahead: the one that begins the next action.
  virtual Call FetchBlock(int block, int ahead) const = 0;
  virtual Call ForgetBlocks() const = 0;

  // The backend's kernel with these arguments, which are checked here and never again.
  template <typename Args>
  Call Kernel(const Args& args) const {
    Check(args);
    return [kernel = backend().template unchecked_kernel<Args>(), args](Exec& exec) {
      kernel(exec, args);
    };
  }
};

}  // namespace trainyard
