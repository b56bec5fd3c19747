#include "profiler.h"

#include <mutex>
#include <utility>

#include "cuda_profiler_api.h"
#include "nvtx3/nvToolsExt.h"

namespace cuda_emulation {
namespace {

struct Record {
  std::mutex mutex;
  std::vector<ProfilerCall> calls;
  cudaError_t start_error = cudaSuccess;
};

Record& TheRecord() {
  static Record record;
  return record;
}

cudaError_t Note(ProfilerCall::Kind kind, const char* name = "") {
  Record& record = TheRecord();
  const std::lock_guard lock(record.mutex);
  record.calls.push_back({kind, name, std::this_thread::get_id(), IsIdle()});
  const bool refused = kind == ProfilerCall::kStart && record.start_error != cudaSuccess;
  return refused ? record.start_error : Outcome();
}

}  // namespace

std::vector<ProfilerCall> TakeProfilerCalls() {
  Record& record = TheRecord();
  const std::lock_guard lock(record.mutex);
  return std::exchange(record.calls, {});
}

void SetProfilerError(cudaError_t error) {
  const std::lock_guard lock(TheRecord().mutex);
  TheRecord().start_error = error;
}

}  // namespace cuda_emulation

using cuda_emulation::ProfilerCall;

cudaError_t cudaProfilerStart() { return cuda_emulation::Note(ProfilerCall::kStart); }
cudaError_t cudaProfilerStop() { return cuda_emulation::Note(ProfilerCall::kStop); }
int nvtxRangePushA(const char* name) {
  return cuda_emulation::Note(ProfilerCall::kBeginRange, name), 0;
}
int nvtxRangePop() { return cuda_emulation::Note(ProfilerCall::kEndRange), 0; }
