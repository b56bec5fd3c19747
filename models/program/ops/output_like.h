// The declaration of an output with the shape and dtype of a value, for example its gradient.

#pragma once

#include "models/program/recorder.h"

namespace trainyard::ops {

inline Recorder::Output OutputLike(const Recorder& recorder, Value value, const char* name) {
  const ValueInfo& info = recorder.info(value);
  return {.shape = info.shape, .dtype = info.dtype, .name = name};
}

}  // namespace trainyard::ops
