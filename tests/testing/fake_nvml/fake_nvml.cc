// The library itself; fake_nvml.h says what it is for. Signatures are those of NVIDIA's NVML API
// reference, written down here a second time, so that a wrong one shows.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "nlohmann/json.hpp"

namespace {

using nlohmann::json;

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kTimeout = 10,
              kLibraryNotFound = 12;

// Waits while it is stuck.
json Machine() {
  for (;; ::usleep(1000)) {
    const char* path = std::getenv("FAKE_NVML");
    std::ifstream file(path == nullptr ? "" : path);
    json machine = json::parse(file, nullptr, false);
    if (!machine.value("stuck", false)) return machine;
  }
}

// A handle is the GPU's index plus one.
json Gpu(void* device) {
  const size_t index = reinterpret_cast<uintptr_t>(device) - 1;
  const json machine = Machine();
  return index < machine["gpus"].size() ? machine["gpus"][index] : json();
}

// Calls read(gpu) unless an error is planted, or `field` is not there.
template <typename Read>
int Of(void* device, const char* field, Read read) {
  const json gpu = Gpu(device);
  if (gpu.is_null()) return kInvalidArgument;
  if (const int error = gpu.value("error", kSuccess)) return error;
  if (!gpu.contains(field)) return kNotSupported;
  read(gpu[field]);
  return kSuccess;
}

int Copy(const std::string& text, char* out, unsigned length) {
  if (text.size() >= length) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  std::strcpy(out, text.c_str());
  return kSuccess;
}

int CopyOf(void* device, const char* field, char* out, unsigned length) {
  int copied = kSuccess;
  const int result = Of(device, field, [&](const json& text) { copied = Copy(text, out, length); });
  return result != kSuccess ? result : copied;
}

}  // namespace

extern "C" {

struct nvmlUtilization_t {
  unsigned gpu, memory;
};
struct nvmlEventData_t {
  void* device;
  unsigned long long eventType, eventData;
  unsigned gpuInstanceId, computeInstanceId;
};
struct nvmlMemory_v2_t {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

int nvmlInit_v2() { return Machine().value("init", kSuccess); }
int nvmlShutdown() { return kSuccess; }

const char* nvmlErrorString(int result) {
  switch (result) {
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    case 18:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return Copy(Machine().value("driver", ""), version, length);
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  const json machine = Machine();
  if (!machine.contains("cuda")) return kLibraryNotFound;
  *version = machine["cuda"];
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = unsigned(Machine()["gpus"].size());
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= Machine()["gpus"].size()) return kInvalidArgument;
  *device = reinterpret_cast<void*>(uintptr_t(index) + 1);
  return kSuccess;
}

int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  return CopyOf(device, "name", name, length);
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  return CopyOf(device, "uuid", uuid, length);
}

int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  return Of(device, "capability", [&](const json& capability) {
    *major = capability[0];
    *minor = capability[1];
  });
}

int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  return Of(device, "mig", [&](const json& mig) { *current = *pending = mig; });
}

int nvmlDeviceGetMemoryInfo_v2(void* device, nvmlMemory_v2_t* memory) {
  if (memory->version != 0x02000028) return 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
  const json gpu = Gpu(device);
  return Of(device, "memory_total", [&](unsigned long long total) {
    memory->total = total;
    memory->reserved = gpu.value("memory_reserved", 0ull);
    memory->used = gpu.value("memory_used", 0ull);
    memory->free = total - memory->reserved - memory->used;
  });
}

int nvmlDeviceGetUtilizationRates(void* device, nvmlUtilization_t* rates) {
  return Of(device, "utilization", [&](unsigned gpu) { *rates = {gpu, 0}; });
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return Of(device, "power", [&](unsigned value) { *milliwatts = value; });
}

int nvmlDeviceGetClockInfo(void* device, int type, unsigned* megahertz) {
  if (type != 1) return kInvalidArgument;  // NVML_CLOCK_SM
  return Of(device, "sm_clock", [&](unsigned value) { *megahertz = value; });
}

int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  if (sensor != 0) return kInvalidArgument;  // NVML_TEMPERATURE_GPU
  return Of(device, "temperature", [&](unsigned value) { *celsius = value; });
}

int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
  return Of(device, "clock_event_reasons", [&](unsigned long long value) { *reasons = value; });
}

// An event set is the number of XIDs that it has told, and a bit for each GPU.
struct EventSet {
  size_t told = 0;
  unsigned gpus = 0;
};

int nvmlEventSetCreate(EventSet** set) {
  *set = new EventSet;
  return kSuccess;
}

int nvmlEventSetFree(EventSet* set) {
  delete set;
  return kSuccess;
}

int nvmlDeviceRegisterEvents(void* device, unsigned long long types, EventSet* set) {
  if (types != 0x8) return kInvalidArgument;  // nvmlEventTypeXidCriticalError
  set->gpus |= 1u << (reinterpret_cast<uintptr_t>(device) - 1);
  return kSuccess;
}

int nvmlEventSetWait_v2(EventSet* set, nvmlEventData_t* event, unsigned timeout_ms) {
  if (timeout_ms != 0) return kInvalidArgument;  // The daemon does not wait.
  const json xids = Machine().value("xids", json::array());
  while (set->told < xids.size()) {
    const json& next = xids[set->told++];
    const unsigned gpu = next["gpu"];
    if (!(set->gpus >> gpu & 1)) continue;
    *event = {reinterpret_cast<void*>(uintptr_t(gpu) + 1), 0x8, next["xid"], 0, 0};
    return kSuccess;
  }
  return kTimeout;
}

}  // extern "C"
