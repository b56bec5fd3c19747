# The bundle: `ninja -C build package` makes build/trainyard-VERSION-Linux.tar.gz, which runs on another distribution
# (glibc 2.36 or newer) from wherever it is unpacked. Shared libraries lie in lib/, where programs look
# first; NVIDIA's are not among them: they belong to the machine, and only libtrainyard_cuda.so wants them.
install(PROGRAMS scripts/gpu_check.sh DESTINATION scripts)
install(DIRECTORY scripts/gpu_check DESTINATION scripts FILES_MATCHING PATTERN "*.py" PATTERN "*.json")
install(PROGRAMS bench/torch_llama.py DESTINATION scripts/gpu_check)
install(FILES README.md LICENSE DESTINATION .)

install(CODE [[
  file(GLOB programs "${CMAKE_INSTALL_PREFIX}/bin/*" "${CMAKE_INSTALL_PREFIX}/bench/*")
  file(GLOB modules "${CMAKE_INSTALL_PREFIX}/lib/libtrainyard_*.so")
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
include(CPack)
