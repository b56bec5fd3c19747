#include "models/layers/rows.h"

#include "models/program/ops/ops.h"

namespace trainyard {

Value ReadRows(Recorder& recorder, const std::string& name) {
  return ops::OwnRows(recorder, recorder.Read(name));
}

void KeepRows(Recorder& recorder, const std::string& name, Value x) {
  recorder.KeepOutput(name, ops::AllGather(recorder, x, kTensorAxes));
}

}  // namespace trainyard
