# The helpers that every CMakeLists.txt consists of. DEPS are link dependencies, public for libraries.
# GRPC reuses the precompiled header of the proto library: half of the compile time of such a file. APART names sources
# that are compiled alone, because they use names that other sources of the target use for something else.

function(trainyard_target_ name)
  cmake_parse_arguments(ARG "GRPC" "TIMEOUT" "SRCS;APART;DEPS;LABELS" ${ARGN})
  if(ARG_APART)
    target_sources(${name} PRIVATE ${ARG_APART})
    set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  else()
    target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  endif()
  if(ARG_GRPC)
    target_link_libraries(${name} PUBLIC trainyard_proto)
    target_precompile_headers(${name} REUSE_FROM trainyard_proto)
    if(type STREQUAL "EXECUTABLE")
      # The header was compiled with -fPIC; CMake would give an executable -fPIE, which it refuses.
      set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${name} PRIVATE -fPIC)
    endif()
  endif()
endfunction()

# Compiles tests, and what only tests use, in three quarters of the time. What they test has -O2.
function(trainyard_compile_quickly name)
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
endfunction()

# trainyard_library(NAME SRCS a.cc b.cc DEPS trainyard_common ... [GRPC])
function(trainyard_library name)
  cmake_parse_arguments(ARG "GRPC" "" "SRCS;APART;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  trainyard_target_(${name} ${ARGN})
endfunction()

# trainyard_program(NAME SRCS ... DEPS ... [GRPC]): lands in build/bin.
function(trainyard_program name)
  cmake_parse_arguments(ARG "GRPC" "" "SRCS;APART;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  trainyard_target_(${name} ${ARGN})
  install(TARGETS ${name} RUNTIME DESTINATION bin)
  set_property(GLOBAL APPEND PROPERTY TRAINYARD_PROGRAMS ${name})
endfunction()

# trainyard_test(NAME SRCS ... DEPS ... [GRPC] [LABELS ...] [TIMEOUT seconds]): a GoogleTest binary, one ctest entry.
# Without GRPC and without a label of its own it is labelled tsan: the thread sanitizer runs it (scripts/sanitize.sh).
function(trainyard_test name)
  cmake_parse_arguments(ARG "GRPC" "TIMEOUT" "SRCS;APART;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  trainyard_target_(${name} ${ARGN})
  trainyard_compile_quickly(${name})
  target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest_main)
  if(NOT ARG_GRPC)
    # A third of the compile time of a test. Its macros must be those of the header, so every test has OpenMP's.
    target_link_libraries(${name} PRIVATE OpenMP::OpenMP_CXX)
    target_precompile_headers(${name} REUSE_FROM trainyard_test_header)
  endif()
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
  trainyard_compile_quickly(${name})
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
  cmake_parse_arguments(ARG "GRPC" "" "SRCS;APART;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  trainyard_target_(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE benchmark::benchmark benchmark::benchmark_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()
