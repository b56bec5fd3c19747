// The interface through which an op is bound: it gives the op addresses for values.

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
  // One dim. As ProgramMemory::frozen.
  virtual Tensor frozen(FlatBuffer buffer, const FlatRange& bytes, DType dtype) const = 0;
  // Whether this instance overwrites the parameter gradient or adds to it. The answer differs
  // between the first micro-batch and later ones. Returns kOverwrite for a value that is not a
  // parameter's gradient (Recorder::GradientOutput).
  virtual Write write(Value gradient) const = 0;
  // The same for the sums over micro-batches, if each micro-batch has gradients of its own.
  virtual Write write_sums() const = 0;
  virtual StepState* step_state() const = 0;
  virtual Collective& collective(AxisSet axes) const = 0;
  // Returns a function that throws if communication between ranks has failed. The compute thread
  // must call the function after it has read from the device and before it uses the result.
  virtual std::function<void()> CheckCommunication() const = 0;
  // Returns a call that blocks until the communication stream has run all posted calls.
  virtual Call WaitForCommunication() const = 0;
  // Returns a call to BlockWindows::Fetch. If `ahead` is kNoBlock, the call gathers
  // MicroBatch::next_block ahead.
  virtual Call FetchBlock(int block, int ahead) const = 0;
  virtual Call ForgetBlocks() const = 0;

  // Returns a call of the backend's kernel with these arguments. The arguments are checked here,
  // once.
  template <typename Args>
  Call Kernel(const Args& args) const {
    Check(args);
    return [kernel = backend().template unchecked_kernel<Args>(), args](Exec& exec) {
      kernel(exec, args);
    };
  }
};

}  // namespace trainyard
