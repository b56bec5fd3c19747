#include "worker/daemon/nvml_adapter.h"

#include <dlfcn.h>

#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

// The part of nvml.h that is used here, with the values and layouts of NVIDIA's NVML API reference.
using Handle = void*;
using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kNotSupported = 3;
constexpr Result kNoPermission = 4;
constexpr Result kDriverNotLoaded = 9;
constexpr Result kTimeout = 10;
constexpr Result kLibraryNotFound = 12;
constexpr Result kGpuIsLost = 15;
constexpr Result kResetRequired = 16;

struct Memory {
  unsigned version = unsigned{sizeof(Memory)} | 2u << 24;
  unsigned long long total = 0;
  unsigned long long reserved = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};
static_assert(sizeof(Memory) == 40);

struct Utilization {
  unsigned gpu = 0;  // Per cent of the time.
  unsigned memory = 0;
};

struct Event {
  Handle device = nullptr;
  unsigned long long type = 0;
  unsigned long long data = 0;  // The XID.
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
};
static_assert(sizeof(Event) == 32);

constexpr unsigned long long kXidEvent = 0x8;
constexpr unsigned kSmClock = 1;
constexpr unsigned kGpuTemperature = 0;

constexpr unsigned kTextBytes = 96;  // The longest name and UUID, including the null.

// The first driver branch for each major version of CUDA, from the toolkit's release notes.
const char* DriverOf(int cuda_major) { return cuda_major == 13 ? " (580 or newer)" : ""; }

}  // namespace

struct Nvml::Functions {
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  const char* (*error_string)(Result) = nullptr;
  Result (*driver_version)(char*, unsigned) = nullptr;
  Result (*cuda_driver_version)(int*) = nullptr;
  Result (*count)(unsigned*) = nullptr;
  Result (*handle)(unsigned, Handle*) = nullptr;
  Result (*name)(Handle, char*, unsigned) = nullptr;
  Result (*uuid)(Handle, char*, unsigned) = nullptr;
  Result (*compute_capability)(Handle, int*, int*) = nullptr;
  Result (*mig_mode)(Handle, unsigned*, unsigned*) = nullptr;
  Result (*memory)(Handle, Memory*) = nullptr;
  Result (*utilization)(Handle, Utilization*) = nullptr;
  Result (*power)(Handle, unsigned*) = nullptr;
  Result (*clock)(Handle, unsigned, unsigned*) = nullptr;
  Result (*temperature)(Handle, unsigned, unsigned*) = nullptr;
  Result (*clock_event_reasons)(Handle, unsigned long long*) = nullptr;
  Result (*create_events)(Handle*) = nullptr;
  Result (*register_events)(Handle, unsigned long long, Handle) = nullptr;
  Result (*wait_event)(Handle, Event*, unsigned) = nullptr;
  Result (*free_events)(Handle) = nullptr;
};

Nvml::Nvml() : nvml_(std::make_unique<Functions>()) {}

Nvml::~Nvml() {
  if (xids_ != nullptr) nvml_->free_events(xids_);
  if (initialized_) nvml_->shutdown();
  if (library_ != nullptr) ::dlclose(library_);
}

absl::Status Nvml::Error(Result result, absl::string_view call) const {
  if (result == kSuccess) return absl::OkStatus();
  const std::string message = absl::StrCat("NVML: ", call, ": ", nvml_->error_string(result));
  switch (result) {
    case kGpuIsLost:
    case kResetRequired:
      return absl::UnavailableError(message);
    case kNotSupported:
      return absl::UnimplementedError(message);
    case kNoPermission:
      return absl::PermissionDeniedError(message);
    case kDriverNotLoaded:
      return absl::NotFoundError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library,
                                                 const std::string& cuda_version) {
  std::unique_ptr<Nvml> opened(new Nvml);
  Functions& f = *opened->nvml_;
  opened->library_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened->library_ == nullptr) {
    return absl::NotFoundError(absl::StrCat("no NVIDIA driver: ", ::dlerror()));
  }
  absl::Status found;
  const auto find = [&](const char* name, auto& function) {
    void* const symbol = ::dlsym(opened->library_, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    if (symbol != nullptr || !found.ok()) return;
    found = absl::FailedPreconditionError(
        absl::StrCat(library, opened->driver_version_.empty() ? "" : " of driver ",
                     opened->driver_version_, " has no ", name, ": it is too old"));
  };
  find("nvmlInit_v2", f.init);
  find("nvmlShutdown", f.shutdown);
  find("nvmlErrorString", f.error_string);
  find("nvmlSystemGetDriverVersion", f.driver_version);
  find("nvmlSystemGetCudaDriverVersion_v2", f.cuda_driver_version);
  RETURN_IF_ERROR(found);
  RETURN_IF_ERROR(opened->Error(f.init(), "start"));
  opened->initialized_ = true;
  // Checked before the other functions, because an old driver lacks some of them and this message
  // says more.
  RETURN_IF_ERROR(opened->CheckDriver(cuda_version));
  find("nvmlDeviceGetCount_v2", f.count);
  find("nvmlDeviceGetHandleByIndex_v2", f.handle);
  find("nvmlDeviceGetName", f.name);
  find("nvmlDeviceGetUUID", f.uuid);
  find("nvmlDeviceGetCudaComputeCapability", f.compute_capability);
  find("nvmlDeviceGetMigMode", f.mig_mode);
  find("nvmlDeviceGetMemoryInfo_v2", f.memory);
  find("nvmlDeviceGetUtilizationRates", f.utilization);
  find("nvmlDeviceGetPowerUsage", f.power);
  find("nvmlDeviceGetClockInfo", f.clock);
  find("nvmlDeviceGetTemperature", f.temperature);
  find("nvmlDeviceGetCurrentClocksEventReasons", f.clock_event_reasons);
  find("nvmlEventSetCreate", f.create_events);
  find("nvmlDeviceRegisterEvents", f.register_events);
  find("nvmlEventSetWait_v2", f.wait_event);
  find("nvmlEventSetFree", f.free_events);
  RETURN_IF_ERROR(found);
  return opened;
}

absl::Status Nvml::CheckDriver(const std::string& cuda_version) {
  char text[kTextBytes] = {};
  RETURN_IF_ERROR(Error(nvml_->driver_version(text, sizeof(text)), "driver version"));
  driver_version_ = text;
  int runs = 0;  // 1000 x major + 10 x minor.
  const Result result = nvml_->cuda_driver_version(&runs);
  if (result == kLibraryNotFound) {
    return absl::FailedPreconditionError(
        absl::StrCat("driver ", driver_version_,
                     " is here without libcuda.so.1, which runs kernels; a "
                     "container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility"));
  }
  RETURN_IF_ERROR(Error(result, "CUDA version of the driver"));
  int wanted = 0;
  const bool known = absl::SimpleAtoi(cuda_version.substr(0, cuda_version.find('.')), &wanted);
  if (known && runs / 1000 >= wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "driver ", driver_version_, " runs CUDA ", runs / 1000, ".", runs % 1000 / 10,
      " at most; this build wants a driver for CUDA ", cuda_version, DriverOf(wanted)));
}

absl::StatusOr<uint32_t> Nvml::Count() const {
  unsigned count = 0;
  RETURN_IF_ERROR(Error(nvml_->count(&count), "number of GPUs"));
  return count;
}

absl::StatusOr<GpuIdentity> Nvml::Identify(uint32_t index) const {
  GpuIdentity gpu{.index = index};
  Handle device = nullptr;
  RETURN_IF_ERROR(Error(nvml_->handle(index, &device), "handle"));
  char name[kTextBytes] = {}, uuid[kTextBytes] = {};
  RETURN_IF_ERROR(Error(nvml_->name(device, name, kTextBytes), "name"));
  RETURN_IF_ERROR(Error(nvml_->uuid(device, uuid, kTextBytes), "UUID"));
  gpu.name = name;
  gpu.uuid = uuid;
  RETURN_IF_ERROR(
      Error(nvml_->compute_capability(device, &gpu.major, &gpu.minor), "compute capability"));
  unsigned mig = 0, pending = 0;
  const Result result = nvml_->mig_mode(device, &mig, &pending);
  if (result != kNotSupported) RETURN_IF_ERROR(Error(result, "MIG mode"));
  gpu.mig = mig != 0;
  if (gpu.mig) return gpu;  // The memory belongs to its instances.
  Memory memory;
  RETURN_IF_ERROR(Error(nvml_->memory(device, &memory), "memory"));
  gpu.memory_bytes = memory.total - memory.reserved;
  return gpu;
}

absl::StatusOr<GpuReading> Nvml::Read(uint32_t index) const {
  GpuReading reading;
  Handle device = nullptr;
  RETURN_IF_ERROR(Error(nvml_->handle(index, &device), "handle"));
  Memory memory;
  Utilization utilization;
  unsigned milliwatts = 0, megahertz = 0, celsius = 0;
  unsigned long long reasons = 0;
  // A value that a GPU does not report stays absent. Every other failure is the GPU's.
  absl::Status failed;
  const auto told = [&](Result result, const char* call) {
    if (result != kNotSupported && failed.ok()) failed = Error(result, call);
    return result == kSuccess;
  };
  if (told(nvml_->utilization(device, &utilization), "utilisation")) {
    reading.utilization = utilization.gpu / 100.0;
  }
  if (told(nvml_->memory(device, &memory), "memory")) reading.memory_used_bytes = memory.used;
  if (told(nvml_->power(device, &milliwatts), "power")) reading.power_watts = milliwatts / 1e3;
  if (told(nvml_->clock(device, kSmClock, &megahertz), "SM clock")) {
    reading.sm_clock_hertz = megahertz * 1e6;
  }
  if (told(nvml_->temperature(device, kGpuTemperature, &celsius), "temperature")) {
    reading.temperature_celsius = celsius;
  }
  if (told(nvml_->clock_event_reasons(device, &reasons), "throttle reasons")) {
    for (size_t i = 0; i < std::size(kGpuThrottleReasons); ++i) {
      if (reasons >> (i + 1) & 1) reading.throttle_reasons.push_back(kGpuThrottleReasons[i]);
    }
  }
  RETURN_IF_ERROR(failed);
  return reading;
}

absl::Status Nvml::WatchXids(uint32_t index) {
  Handle device = nullptr;
  RETURN_IF_ERROR(Error(nvml_->handle(index, &device), "handle"));
  if (xids_ == nullptr) RETURN_IF_ERROR(Error(nvml_->create_events(&xids_), "event set"));
  watched_[device] = index;
  return Error(nvml_->register_events(device, kXidEvent, xids_), "XID events");
}

absl::StatusOr<std::optional<GpuXid>> Nvml::NextXid() {
  if (xids_ == nullptr) return std::nullopt;
  Event event;
  const Result result = nvml_->wait_event(xids_, &event, 0);
  if (result == kTimeout) return std::nullopt;
  RETURN_IF_ERROR(Error(result, "next XID"));
  return GpuXid{watched_.at(event.device), event.data};
}

}  // namespace trainyard
