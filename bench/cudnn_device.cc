// What cuDNN says of the GPU, in one line of JSON: with it plans are made where there is none
// (tests/kernels/attention/cudnn_plans_test.cc).

#include <cudnn_frontend.h>

#include <iostream>
#include <vector>

#include "bench/exit_status.h"

int main() {
  cudnn_frontend::DeviceProperties device;
  std::vector<uint8_t> json;
  auto error = device.set_device_id(0).build();
  if (error.is_good()) error = device.serialize(json);
  if (error.is_bad()) {
    return trainyard::bench::ExitStatus(absl::InternalError(error.get_message()));
  }
  std::cout << "cudnn " << cudnnGetVersion() << " device " << std::string(json.begin(), json.end())
            << '\n';
  return trainyard::bench::ExitStatus(absl::OkStatus());
}
