# Every library comes from the distribution (scripts/install_deps.sh); nothing is fetched or vendored.
find_package(Threads REQUIRED)
if(TRAINYARD_SANITIZE STREQUAL "fuzzer")
  add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)  # Fuzzing builds no kernels, and clang's OpenMP is one more package.
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
find_package(absl REQUIRED CONFIG)
find_package(Protobuf REQUIRED)      # module mode, and before gRPC: Debian's gRPC config expects its targets
find_package(gRPC REQUIRED CONFIG)
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)            # gRPC brings it
find_package(yaml-cpp REQUIRED CONFIG)
find_package(CLI11 REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(prometheus-cpp REQUIRED CONFIG)
find_package(GnuTLS REQUIRED)          # libmicrohttpd brings it
find_package(Gloo REQUIRED CONFIG)
find_package(GTest REQUIRED CONFIG)
find_package(benchmark REQUIRED CONFIG)

# libmicrohttpd has no CMake config.
find_path(MICROHTTPD_INCLUDE_DIR microhttpd.h REQUIRED)
find_library(MICROHTTPD_LIBRARY microhttpd REQUIRED)
add_library(trainyard_microhttpd INTERFACE)
target_include_directories(trainyard_microhttpd SYSTEM INTERFACE ${MICROHTTPD_INCLUDE_DIR})
target_link_libraries(trainyard_microhttpd INTERFACE ${MICROHTTPD_LIBRARY})

# Of what tokenizers use, utf8proc has no CMake config that Debian installs, and SentencePiece none at all.
foreach(library utf8proc sentencepiece)
  string(TOUPPER ${library} name)
  set(header ${library}.h)
  if(library STREQUAL sentencepiece)
    set(header sentencepiece_processor.h)
  endif()
  find_path(${name}_INCLUDE_DIR ${header} REQUIRED)
  find_library(${name}_LIBRARY ${library} REQUIRED)
  add_library(trainyard_${library} INTERFACE)
  target_include_directories(trainyard_${library} SYSTEM INTERFACE ${${name}_INCLUDE_DIR})
  target_link_libraries(trainyard_${library} INTERFACE ${${name}_LIBRARY})
endforeach()

# oneDNN's own CMake config insists on OpenCL headers, which the CPU build does not use.
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(trainyard_dnnl INTERFACE)
target_include_directories(trainyard_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(trainyard_dnnl INTERFACE ${DNNL_LIBRARY})

set(TRAINYARD_CUDA_VERSION none)
if(NOT TRAINYARD_CUDA STREQUAL "off")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND TARGET CUDA::cublasLt)
    set(TRAINYARD_CUDA_VERSION ${CUDAToolkit_VERSION})
    set(TRAINYARD_WITH_CUDA ON)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)  # Hopper, with its own instructions
    enable_language(CUDA)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # One in a process: libraries of ours and of NVIDIA's use it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA_STANDARD 20)
    # Header-only, from scripts/install_cudnn_frontend.sh; without it attention does not use cuDNN.
    set(cudnn_frontend trainyard/cudnn-frontend/1.32.0/include)
    find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS $ENV{XDG_CACHE_HOME}/${cudnn_frontend} $ENV{HOME}/.cache/${cudnn_frontend})
    find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(CUDNN_FRONTEND_INCLUDE_DIR AND CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY AND TARGET CUDA::nvrtc)
      add_library(trainyard_cudnn INTERFACE)
      target_include_directories(trainyard_cudnn SYSTEM INTERFACE ${CUDNN_FRONTEND_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
      target_compile_definitions(trainyard_cudnn INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
      target_link_libraries(trainyard_cudnn INTERFACE ${CUDNN_LIBRARY} CUDA::nvrtc)  # Which the headers call
    endif()
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
      message(FATAL_ERROR "the CUDA toolkit ${CUDAToolkit_VERSION} was found, but not NCCL: install libnccl-dev, set NCCL_INCLUDE_DIR and NCCL_LIBRARY, or TRAINYARD_CUDA=off")
    endif()
    add_library(trainyard_nccl_library INTERFACE)
    target_include_directories(trainyard_nccl_library SYSTEM INTERFACE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(trainyard_nccl_library INTERFACE ${NCCL_LIBRARY} CUDA::cudart)
  elseif(TRAINYARD_CUDA STREQUAL "on" OR CUDAToolkit_NVCC_EXECUTABLE OR EXISTS /dev/nvidiactl)
    # On such a machine, kernels that are left out would be missed late.
    message(FATAL_ERROR "no CUDA toolkit with nvcc and cuBLASLt was found, which TRAINYARD_CUDA=on, an nvcc or a GPU's driver (/dev/nvidiactl) ask for: set CUDAToolkit_ROOT, or TRAINYARD_CUDA=off")
  endif()
endif()
message(STATUS "Trainyard: CUDA toolkit ${TRAINYARD_CUDA_VERSION}")
