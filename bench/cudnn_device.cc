// What cuDNN says of the GPU, in one line of JSON: with it plans are made where there is none
// (tests/kernels/cudnn_plans_test.cc).

#include <cudnn_frontend.h>

#include <iostream>
#include <vector>

int main() {
  cudnn_frontend::DeviceProperties device;
  std::vector<uint8_t> json;
  auto error = device.set_device_id(0).build();
  if (error.is_good()) error = device.serialize(json);
  if (error.is_bad()) {
    std::cerr << "error: " << error.get_message() << '\n';
    return 1;
  }
  std::cout << "cudnn " << cudnnGetVersion() << " device " << std::string(json.begin(), json.end())
            << '\n';
}
