# The helpers that every CMakeLists.txt consists of. DEPS are link dependencies, public for libraries. APART names sources
# that are compiled alone, because they use names that other sources of the target use for something else.
#
# Each target reuses a precompiled header, which is half of the compile time of many sources: that of trainyard_common, with
# GRPC that of trainyard_proto, and a test that of trainyard_test_header. HEADER names the owner of another one.

# What most sources include of other projects. Headers of our own are not precompiled: a change would rebuild everything.
set(TRAINYARD_HEADERS <algorithm> <array> <chrono> <cmath> <filesystem> <functional> <iostream> <limits> <map> <memory> <mutex>
  <optional> <set> <span> <sstream> <string> <thread> <unordered_map> <utility> <variant> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/synchronization/mutex.h> <absl/time/clock.h> <absl/time/time.h>
  <nlohmann/json.hpp>)

# What kernels include. Each of them is compiled alone, and a small header is loaded in less time.
set(TRAINYARD_KERNEL_HEADERS <algorithm> <array> <cmath> <functional> <iostream> <limits> <memory> <numeric> <span> <sstream> <string>
  <utility> <vector>)

function(trainyard_target_ name)
  cmake_parse_arguments(ARG "GRPC;COMPUTES" "HEADER;TIMEOUT" "SRCS;APART;DEPS;LABELS" ${ARGN})
  if(ARG_APART)
    target_sources(${name} PRIVATE ${ARG_APART})
    set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
    return()
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  if(ARG_GRPC)
    target_link_libraries(${name} PUBLIC trainyard_proto)
    set(ARG_HEADER trainyard_proto)
  elseif(NOT ARG_HEADER)
    set(ARG_HEADER trainyard_common)
  endif()
  if(NOT ARG_HEADER STREQUAL name)
    target_precompile_headers(${name} REUSE_FROM ${ARG_HEADER})
  endif()
endfunction()

# Compiles in less time what nobody waits for: LEVEL 1 takes three quarters of the time of -O2, and LEVEL 0 about half. Tests
# have 0, and so has what only they use. Those that compute much have 1, and so has the command line. What tests test has -O2,
# and so have the main files of programs: their copies of inline functions would stand for those of libraries.
function(trainyard_compile_quickly name level)
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O${level}>)
endfunction()

# trainyard_library(NAME SRCS a.cc b.cc DEPS trainyard_common ... [GRPC] [HEADER OWNER])
function(trainyard_library name)
  cmake_parse_arguments(ARG "GRPC" "HEADER" "SRCS;APART;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  trainyard_target_(${name} ${ARGN})
endfunction()

# trainyard_program(NAME SRCS ... DEPS ... [GRPC]): lands in build/bin.
function(trainyard_program name)
  cmake_parse_arguments(ARG "GRPC" "HEADER" "SRCS;APART;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  trainyard_target_(${name} ${ARGN})
  install(TARGETS ${name} RUNTIME DESTINATION bin)
  set_property(GLOBAL APPEND PROPERTY TRAINYARD_PROGRAMS ${name})
endfunction()

# trainyard_test(NAME SRCS ... DEPS ... [GRPC] [COMPUTES] [LABELS ...] [TIMEOUT seconds]): a GoogleTest binary, one ctest
# entry. COMPUTES: it takes several times as long without optimisation.
# Without GRPC and without a label of its own it is labelled tsan: the thread sanitizer runs it (scripts/sanitize.sh).
function(trainyard_test name)
  cmake_parse_arguments(ARG "GRPC;COMPUTES" "TIMEOUT" "SRCS;APART;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  if(ARG_GRPC OR ARG_COMPUTES)  # Programs' headers have been compiled with optimisation.
    trainyard_target_(${name} ${ARGN} HEADER trainyard_common)
    trainyard_compile_quickly(${name} 1)
  else()
    trainyard_target_(${name} ${ARGN} HEADER trainyard_test_header)
    trainyard_compile_quickly(${name} 0)
  endif()
  target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_GRPC AND NOT ARG_LABELS)
    set(ARG_LABELS tsan)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(TRAINYARD_SANITIZE)
    math(EXPR ARG_TIMEOUT "6 * ${ARG_TIMEOUT}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT "TRAINYARD_BIN=${CMAKE_BINARY_DIR}/bin;TRAINYARD_SOURCE=${CMAKE_SOURCE_DIR}")
endfunction()

# trainyard_cuda_test(NAME SRCS ... DEPS ...): the same for a GPU, skipped where there is none.
function(trainyard_cuda_test name)
  cmake_parse_arguments(ARG "" "" "SRCS;APART;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS} ${CMAKE_SOURCE_DIR}/tests/testing/cuda_main.cc)
  trainyard_target_(${name} ${ARGN})
  trainyard_compile_quickly(${name} 1)
  target_link_libraries(${name} PRIVATE trainyard_kernels_cuda GTest::gmock GTest::gtest)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  install(TARGETS ${name} RUNTIME DESTINATION bin COMPONENT check)
  set_property(GLOBAL APPEND PROPERTY TRAINYARD_PROGRAMS ${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS gpu SKIP_RETURN_CODE 77)
endfunction()

# trainyard_skipped_test(NAME WHY): what stands for a test that this machine lacks something for; counted as skipped.
function(trainyard_skipped_test name why)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${why}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
endfunction()

# trainyard_bench(NAME SRCS ... DEPS ...): a Google Benchmark binary in build/bench, with a main() of its own or the
# library's; never run by ctest.
function(trainyard_bench name)
  cmake_parse_arguments(ARG "GRPC" "HEADER" "SRCS;APART;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  trainyard_target_(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE benchmark::benchmark benchmark::benchmark_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()
