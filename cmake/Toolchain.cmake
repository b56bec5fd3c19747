# How everything is compiled: C++20, warnings as errors, mold and ccache where they are installed.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
# All C++ has the same two flags, so that libraries and programs can share a precompiled header. Checks name a source as the
# tree does, wherever the tree lies: without this, the joined sources of two clones differ, and so do their keys in ccache.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC> $<$<COMPILE_LANGUAGE:CXX>:-pthread>
                    $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>)
# By itself GCC collects garbage early and often, which takes a seventh of its time. Without any collection, one of the largest
# sources of tests took 1.3 GB.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=600000>")
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings -Xcompiler=-Wall,-Werror>")

# Programs find what they load at run time beside them, where they are built and where they are installed. A path of
# its own for the build would end in a colon, and the loader would look for libraries in the current directory.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
add_link_options(-Wl,--disable-new-dtags)  # so that what those want is looked for there, too

# Sixteen sources of a target are compiled as one, which takes a quarter of the time: most of a source's time is spent on
# the headers and templates that its neighbours have, too. -DCMAKE_UNITY_BUILD=OFF compiles each alone, as whoever changes
# one source all day may want. The sources of a target must not use one name for two things, then (APART: cmake/Targets.cmake).
set(CMAKE_UNITY_BUILD ON CACHE BOOL "Compile the sources of a target in batches")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
if(CMAKE_UNITY_BUILD)
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)  # which takes joined sources for headers
endif()

find_program(TRAINYARD_CCACHE ccache)
if(TRAINYARD_CCACHE)
  # Precompiled headers need these, and nothing here depends on __TIME__ or on macro locations. Paths below the sources
  # are relative, so that two clones share what the cache holds.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${TRAINYARD_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
find_program(TRAINYARD_MOLD mold)
if(TRAINYARD_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(TRAINYARD_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1)
  # GCC 12 takes members of std::regex for uninitialized once their accesses are instrumented
  # (https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105616). Every other build still has the warning.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=address,undefined)
elseif(TRAINYARD_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=thread)
elseif(TRAINYARD_SANITIZE STREQUAL "fuzzer")  # clang alone; scripts/fuzz.sh
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
elseif(TRAINYARD_SANITIZE)
  message(FATAL_ERROR "TRAINYARD_SANITIZE is '${TRAINYARD_SANITIZE}'; legal: empty, address, thread, fuzzer")
endif()
