// main() of tests that need a GPU. Without one nothing runs, and the exit code is 77, which ctest
// shows as skipped; with TRAINYARD_REQUIRE_GPU=1 it is a failure.
//
// Death tests stay out: they look at what the host does, which tests on the CPU cover, and a
// process that uses a GPU cannot fork.

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "kernels/cuda/cuda.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  ::testing::InitGoogleTest(&argc, argv);
  std::string& filter = ::testing::GTEST_FLAG(filter);
  filter += filter.find('-') == std::string::npos ? "-*DeathTest*" : ":*DeathTest*";
  const auto backend = trainyard::CudaBackend();
  if (backend.ok()) {
    std::cout << "on " << (*backend)->name() << std::endl;
    return RUN_ALL_TESTS();
  }
  const char* const required = std::getenv("TRAINYARD_REQUIRE_GPU");
  const bool fails = required != nullptr && std::string(required) == "1";
  std::cout << (fails ? "FAILED" : "SKIPPED") << ": "
            << ::testing::UnitTest::GetInstance()->total_test_count()
            << " tests need a GPU: " << backend.status().message() << std::endl;
  return fails ? 1 : kSkipped;
}
