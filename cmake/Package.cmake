# Two packages of the same programs. Both bring the shared libraries that they need in lib/, where
# programs look first. NVIDIA's libraries are in neither: they belong to the machine, and only
# libtrainyard_cuda.so and libtrainyard_kernels_cuda.so want them.
#
#   scripts/gpu_bundle.sh     build/trainyard-gpu.tar.xz: the bundle for a machine with a GPU. It runs
#                             from wherever it is unpacked (glibc 2.36 or newer), and it has what
#                             checks and measures a GPU.
#   ninja -C build package    trainyard_VERSION_amd64.deb: what users need, with units, users and
#                             manual pages (cmake/DebianTree.cmake)
#
# What lies in the component "check" is in the bundle alone.
install(PROGRAMS scripts/gpu_check.sh DESTINATION scripts COMPONENT check)
install(DIRECTORY scripts/gpu_check DESTINATION scripts COMPONENT check
  FILES_MATCHING PATTERN "*.py" PATTERN "*.json")
install(PROGRAMS bench/torch_llama.py DESTINATION scripts/gpu_check COMPONENT check)
install(FILES README.md LICENSE DESTINATION .)

if(TRAINYARD_WITH_CUDA)
  set(measures train_step predict_step lockstep matmul_search)
  if(TARGET trainyard_cudnn)
    list(APPEND measures cudnn_device gpu_libraries)
  endif()
  install(TARGETS ${measures} RUNTIME DESTINATION bench COMPONENT check)
  get_property(programs GLOBAL PROPERTY TRAINYARD_PROGRAMS)
  set(bundle ${CMAKE_BINARY_DIR}/trainyard-gpu.tar.xz)
  set(tree ${CMAKE_BINARY_DIR}/gpu_bundle/trainyard)
  file(GLOB_RECURSE packed CONFIGURE_DEPENDS scripts/gpu_check/*.py scripts/gpu_check/*.json)
  set(made_by Package BundleTree PackBundle BundleSize)
  list(TRANSFORM made_by REPLACE "(.+)" "${CMAKE_CURRENT_LIST_DIR}/\\1.cmake")
  add_custom_command(OUTPUT ${bundle}
    COMMAND ${CMAKE_COMMAND} -DBUILD=${CMAKE_BINARY_DIR} -DTREE=${tree}
            -P ${CMAKE_CURRENT_LIST_DIR}/BundleTree.cmake
    COMMAND ${CMAKE_COMMAND} -DTREE=${tree} -DBUNDLE=${bundle} -DSOURCE=${CMAKE_SOURCE_DIR}
            -P ${CMAKE_CURRENT_LIST_DIR}/PackBundle.cmake
    DEPENDS ${programs} ${measures} trainyard_cuda ${packed} ${made_by} scripts/gpu_check.sh
            bench/torch_llama.py README.md LICENSE
    VERBATIM)
  add_custom_target(gpu_bundle DEPENDS ${bundle})
endif()

install(CODE [[
  set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  file(GLOB programs "${root}/bin/*" "${root}/bench/*")
  file(GLOB modules "${root}/lib/libtrainyard_*.so")
  # What every such machine has, and what belongs to its driver.
  set(theirs "^(ld-linux.*|linux-vdso|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\\+\\+)[.]so"
             "^libtrainyard_" "^lib(cuda|cublas|cublasLt|cudart|cudnn|nccl|nvidia|nvrtc).*[.]so")
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} MODULES ${modules}
    RESOLVED_DEPENDENCIES_VAR ours PRE_EXCLUDE_REGEXES ${theirs})
  foreach(library ${ours})
    file(INSTALL ${library} DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" FOLLOW_SYMLINK_CHAIN)
  endforeach()
]])

set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)

set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/DebianPackage.cmake)  # Read by cpack, for each generator.
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The Trainyard maintainers <maintainers@trainyard.invalid>")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "service that trains large language models")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "A controller takes jobs over gRPC and places their ranks on workers, one for each machine,
 which train on GPUs or on CPUs and export step time and MFU to Prometheus.
 The package has all programs, with units of systemd that wait to be enabled.")
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libgcc-s1, libstdc++6 (>= 12), passwd")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "bash-completion, ca-certificates")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles ${CMAKE_SOURCE_DIR}/deploy/debian/postinst
  ${CMAKE_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_SOURCE_DIR}/deploy/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_TRAINYARD_DEPLOY ${CMAKE_SOURCE_DIR}/deploy)
include(CPack)
