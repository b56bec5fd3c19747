# Two packages of the same programs. Both bring the shared libraries that they need in lib/, where programs look first;
# NVIDIA's are not among them: they belong to the machine, and only libtrainyard_cuda.so wants them.
#
#   ninja -C build package    trainyard-VERSION-Linux.tar.gz: the bundle, which runs on another distribution (glibc 2.36 or
#                             newer) from wherever it is unpacked, with what measures and checks a GPU
#   cpack -G DEB              trainyard_VERSION_amd64.deb: what users need, with units, users and manual pages
#                             (cmake/DebianTree.cmake)
#
# What lies in the component "check" is in the bundle alone.
install(PROGRAMS scripts/gpu_check.sh DESTINATION scripts COMPONENT check)
install(DIRECTORY scripts/gpu_check DESTINATION scripts COMPONENT check FILES_MATCHING PATTERN "*.py" PATTERN "*.json")
install(PROGRAMS bench/torch_llama.py DESTINATION scripts/gpu_check COMPONENT check)
install(FILES README.md LICENSE DESTINATION .)

install(CODE [[
  set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  file(GLOB programs "${root}/bin/*" "${root}/bench/*")
  file(GLOB modules "${root}/lib/libtrainyard_*.so")
  # What every such machine has, and what belongs to its driver.
  set(theirs "^(ld-linux.*|linux-vdso|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\\+\\+)[.]so"
             "^lib(cuda|cublas|cublasLt|cudart|cudnn|nccl|nvidia|nvrtc).*[.]so")
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} MODULES ${modules}
    RESOLVED_DEPENDENCIES_VAR ours PRE_EXCLUDE_REGEXES ${theirs})
  foreach(library ${ours})
    file(INSTALL ${library} DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" FOLLOW_SYMLINK_CHAIN)
  endforeach()
]])

set(CPACK_GENERATOR TGZ)
set(CPACK_STRIP_FILES ON)
set(CPACK_POST_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/BundleSize.cmake)
set(CPACK_PACKAGE_FILE_NAME trainyard-${PROJECT_VERSION}-Linux)

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
